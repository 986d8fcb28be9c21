//! Locks as text for the terminal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{Details, Holder, LockState, Waiter};

/// A table whose columns are as wide as their longest cell.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A holder in one line: `pid 17 on web1, token 42, exclusive, for 3 s, ends in 27 s unless
/// renewed`.
pub(crate) fn holder(holder: &Holder) -> String {
    let mut words = who(&holder.details);
    match holder.token {
        Some(token) => words.push_str(&format!(", token {token}")),
        None => words.push_str(", without a token"),
    }
    words.push_str(&format!(", {}", holder.mode));
    if !is_stranger(&holder.details) {
        words.push_str(&format!(", for {}", age(&holder.details)));
    }
    if let Some(left) = holder.expires_in {
        words.push_str(&format!(", ends in {} unless renewed", short(left)));
    }
    words
}

/// A waiter in one line.
pub(crate) fn waiter(waiter: &Waiter) -> String {
    format!("{}, {}, for {}", who(&waiter.details), waiter.mode, age(&waiter.details))
}

/// `pid 17 on web1 (job=nightly)`.
pub(crate) fn who(details: &Details) -> String {
    if is_stranger(details) {
        return "a client that is not tollgate".to_owned();
    }
    let mut words = match (details.pid, details.host.as_str()) {
        (0, "") => "an unknown process".to_owned(),
        (pid, host) => format!("pid {pid} on {}", printable(host)),
    };
    if !details.meta.is_empty() {
        let meta: Vec<String> = details
            .meta
            .iter()
            .map(|(key, value)| format!("{}={}", printable(key), printable(value)))
            .collect();
        words.push_str(&format!(" ({})", meta.join(", ")));
    }
    words
}

/// Whether nothing is known of a client: one that is not Tollgate leaves no details.
fn is_stranger(details: &Details) -> bool {
    *details == Details::default()
}

/// How long ago a claim was made, by wall clocks that may differ.
pub(crate) fn age(details: &Details) -> String {
    if is_stranger(details) {
        return "?".to_owned();
    }
    let since = UNIX_EPOCH + Duration::from_millis(details.since_ms);
    short(SystemTime::now().duration_since(since).unwrap_or_default())
}

/// The time of day in UTC, of milliseconds since 1970: `17:04:05.123Z`.
pub(crate) fn time(since_1970_ms: u64) -> String {
    let (seconds, millis) = (since_1970_ms / 1000 % 86400, since_1970_ms % 1000);
    format!("{:02}:{:02}:{:02}.{millis:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A duration in at most two units.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// A process that this user cannot end, as a sentence without its full stop.
pub(crate) fn out_of_reach(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!(
        "process {pid} ({}) belongs to another user and cannot be ended by this one",
        printable(name.trim())
    )
}

/// Text of other clients, without control characters, which could manipulate a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// What a claim on a lock has to wait for, in one line: its holders, or else its first waiter.
pub(crate) fn in_the_way(state: &LockState) -> Option<String> {
    holders(&state.holders).or_else(|| first_waiter(state))
}

/// The holders of a lock, in one line.
pub(crate) fn holders(holders: &[Holder]) -> Option<String> {
    let (first, others) = holders.split_first()?;
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Some(format!("held by {}{more}", holder(first)))
}

/// The first waiter of a lock without a holder, in one line; `None` if that is this process.
pub(crate) fn first_waiter(state: &LockState) -> Option<String> {
    let first = state.waiters.first().filter(|first| first.details.pid != std::process::id())?;
    Some(format!(
        "it has no holder; the first waiter is {}; if that process is stopped, continue or end it",
        waiter(first)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_that_of_utc() {
        assert_eq!(time(0), "00:00:00.000Z");
        assert_eq!(time((1_000 * 86_400 + 17 * 3600 + 4 * 60 + 5) * 1000 + 123), "17:04:05.123Z");
    }

    #[test]
    fn a_client_without_details_is_not_given_any() {
        let mode = tollgate::Mode::Exclusive;
        let expires_in = Some(Duration::from_secs(59));
        let stranger = Holder { mode, token: None, expires_in, details: Details::default() };
        let said = "a client that is not tollgate, without a token, exclusive, ends in 59 s unless renewed";
        assert_eq!(holder(&stranger), said);
        assert_eq!(age(&stranger.details), "?");
    }

    #[test]
    fn columns_line_up_and_control_characters_are_replaced() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        assert_eq!(columns(&[row(&["NAME", "N"]), row(&["größe", "12"])]), "NAME   N\ngröße  12\n");
        assert_eq!(printable("a\x1b[31mb"), "a\u{fffd}[31mb");
        assert_eq!(short(Duration::from_secs(3700)), "1 h 1 min");
    }
}
