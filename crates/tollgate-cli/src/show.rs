//! Locks as text for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{Details, Holder, LockState, Waiter};

/// Columns that are as wide as they must be.
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

/// A holder in a few words: `pid 17 on web1, token 42, for 3s, ends in 27s`.
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

/// A waiter in a few words.
pub(crate) fn waiter(waiter: &Waiter) -> String {
    format!("{}, {}, for {}", who(&waiter.details), waiter.mode, age(&waiter.details))
}

/// `pid 17 on web1 (job=nightly)`.
pub(crate) fn who(details: &Details) -> String {
    if is_stranger(details) {
        return "a client of another kind".to_owned();
    }
    let mut words = format!("pid {} on {}", details.pid, printable(&details.host));
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

/// Whether nothing is known of somebody: a client that is not Tollgate says nothing of itself.
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

/// What others wrote, without what could play tricks on a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Who is in the way of somebody who does not get a lock, in one line.
pub(crate) fn in_the_way(state: &LockState) -> Option<String> {
    holders(&state.holders).or_else(|| first_waiter(state))
}

/// Who holds a lock, in one line.
pub(crate) fn holders(holders: &[Holder]) -> Option<String> {
    let (first, others) = holders.split_first()?;
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Some(format!("held by {}{more}", holder(first)))
}

/// Who has to move before anybody gets a lock that nobody holds; `None` if that is this process.
pub(crate) fn first_waiter(state: &LockState) -> Option<String> {
    let first = state.waiters.first().filter(|first| first.details.pid != std::process::id())?;
    Some(format!(
        "nobody holds it; the first in the queue is {}; if that is stopped, continue or end it",
        waiter(first)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_stranger_nothing_is_made_up() {
        let mode = tollgate::Mode::Exclusive;
        let expires_in = Some(Duration::from_secs(59));
        let stranger = Holder { mode, token: None, expires_in, details: Details::default() };
        let said = "a client of another kind, without a token, exclusive, ends in 59 s unless renewed";
        assert_eq!(holder(&stranger), said);
        assert_eq!(age(&stranger.details), "?");
    }

    #[test]
    fn columns_line_up_and_nothing_plays_tricks() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        assert_eq!(columns(&[row(&["NAME", "N"]), row(&["größe", "12"])]), "NAME   N\ngröße  12\n");
        assert_eq!(printable("a\x1b[31mb"), "a\u{fffd}[31mb");
        assert_eq!(short(Duration::from_secs(3700)), "1 h 1 min");
    }
}
