//! The server's clock beside ours, and how far away it is.

use std::time::Duration;

use tollgate_core::Finding;

use super::seen::Seen;

/// From when on clocks differ.
const APART: Duration = Duration::from_secs(1);
/// From when on a server is far away.
const FAR: Duration = Duration::from_millis(20);

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    let Some(clock) = seen.clock else { return };
    findings.push(difference(clock.ahead, clock.round_trip / 2));
    if clock.round_trip > FAR {
        findings.push(Finding::note(
            format!("its quickest answer took {:.0?}", clock.round_trip),
            "a lock takes one such round trip to take and one to give back, and a renewal that is lost costs several",
            "choose a ttl of many round trips, or a server that is nearer",
        ));
    }
}

/// What is surely different, whatever the answer took.
fn difference(ahead: i64, give_or_take: Duration) -> Finding {
    let apart = Duration::from_micros(ahead.unsigned_abs());
    let shown = if apart < APART {
        format!("{:.1} ms", apart.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", apart.as_secs_f64())
    };
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    let what =
        format!("its clock is {shown} {way} ours, give or take {:.1} ms", give_or_take.as_secs_f64() * 1e3);
    if apart.saturating_sub(give_or_take) < APART {
        return Finding::fine(what);
    }
    Finding::note(
        what,
        "leases end by its clock. That it differs does no harm, but it will jump when somebody corrects it: forward, and \
         locks end early",
        "have NTP or chrony keep its clock, and ours",
    )
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::*;

    #[test]
    fn clocks_differ_only_if_the_answer_was_quick_enough_to_tell() {
        let quick = Duration::from_millis(1);
        assert_eq!(difference(900_000, quick).severity, Severity::Fine);
        assert_eq!(difference(-1_500_000, quick).severity, Severity::Note);
        assert_eq!(difference(1_500_000, Duration::from_secs(1)).severity, Severity::Fine);
    }
}
