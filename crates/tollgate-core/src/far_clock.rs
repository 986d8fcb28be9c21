//! Another machine's clock beside ours, as doctors of engines judge it.

use std::time::Duration;

use crate::checkup::Finding;

/// From when on clocks differ.
pub const APART: Duration = Duration::from_secs(1);
/// From when on a server is far away.
const FAR: Duration = Duration::from_millis(20);

/// What a clock said.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// By how many microseconds it is ahead of ours.
    pub ahead: i64,
    /// How long the answer took: it may be wrong by half of that.
    pub round_trip: Duration,
}

impl Reading {
    /// What is to be said of it, by an engine whose leases end by its clock; `besides` is what else rests on that.
    pub fn findings(self, besides: &str) -> Vec<Finding> {
        let mut findings = vec![self.difference(besides)];
        if self.round_trip > FAR {
            findings.push(Finding::note(
                format!("the fastest reply of the server took {:.0?}", self.round_trip),
                "taking a lock costs one such round trip, releasing it costs another, and a lost renewal \
                 costs several",
                "choose a ttl of many round trips, or a closer server",
            ));
        }
        findings
    }

    /// What is surely different, whatever the answer took.
    fn difference(self, besides: &str) -> Finding {
        let (apart, give_or_take) = (Duration::from_micros(self.ahead.unsigned_abs()), self.round_trip / 2);
        let shown = if apart < APART {
            format!("{:.1} ms", apart.as_secs_f64() * 1e3)
        } else {
            format!("{:.1} s", apart.as_secs_f64())
        };
        let way = if self.ahead < 0 { "behind" } else { "ahead of" };
        let millis = give_or_take.as_secs_f64() * 1e3;
        let what = format!("the server's clock is {shown} {way} this machine's, give or take {millis:.1} ms");
        if apart.saturating_sub(give_or_take) < APART {
            return Finding::fine(what);
        }
        let why = format!(
            "leases expire by the server's clock. A constant difference does no harm, but a correction \
             makes the clock jump: after a jump forward, locks expire early{besides}"
        );
        Finding::note(what, why, "synchronise both clocks with NTP or chrony")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkup::Severity;

    #[test]
    fn clocks_differ_only_if_the_answer_was_quick_enough_to_tell() {
        let judged = |ahead, millis| {
            let round_trip = Duration::from_millis(millis);
            Reading { ahead, round_trip }.findings("")
        };
        assert_eq!(judged(900_000, 2)[0].severity, Severity::Fine);
        assert_eq!(judged(1_500_000, 2)[0].severity, Severity::Note);
        let behind = judged(-1_500_000, 2);
        assert_eq!(behind[0].severity, Severity::Note);
        assert!(behind[0].what.contains("1.5 s behind"), "{behind:?}");
        assert_eq!(behind.len(), 1, "the server is near");
        let far = judged(1_500_000, 2000);
        assert_eq!((far[0].severity, far.len()), (Severity::Fine, 2));
    }
}
