//! When a command is asked to end, and when it is killed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::Moment;

/// How a command is ended when its lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// Between asking and killing; `None`: it is killed without being asked.
    pub(crate) grace: Option<Duration>,
    /// How long before the deadline it is killed, so that it is gone by then.
    pub(crate) lead: Duration,
    /// Whether deadlines matter at all.
    pub(crate) enforced: bool,
    /// How long it may go on after a SIGTERM that was passed on.
    pub(crate) kill_after: Duration,
}

impl Terms {
    /// The longest grace, and the longest lead.
    const MOST_GRACE: Duration = Duration::from_secs(5);
    const MOST_LEAD: Duration = Duration::from_millis(100);

    /// For a lock that is held for `time` at a stretch: its ttl, or all that it may be held.
    pub(crate) fn new(time: Duration, ask_first: bool, enforced: bool, kill_after: Duration) -> Self {
        Self {
            grace: ask_first.then(|| (time / 4).min(Self::MOST_GRACE)),
            lead: (time / 20).min(Self::MOST_LEAD),
            enforced,
            kill_after,
        }
    }
}

/// What is due for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Ask(Why),
    Kill(Why),
}

/// Why a command must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    /// The lock is lost, or about to be.
    Lock,
    /// It did not heed a SIGTERM that was passed on.
    Term,
}

/// The command's fate, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct Sentence {
    terms: Terms,
    /// When the lock must be expected to be gone, unless it is renewed.
    deadline: Moment,
    /// How long before that it is asked to end.
    notice: Duration,
    /// When the lock was lost for good: no renewal helps any more.
    lost: Option<Moment>,
    /// When it has had enough time after a SIGTERM.
    heed_by: Moment,
    asked: bool,
}

impl Sentence {
    pub(super) fn new(terms: Terms, told: Option<Moment>, now: Moment) -> Self {
        let (deadline, notice) = (Moment::ZERO, Duration::ZERO);
        let mut sentence = Self { terms, deadline, notice, lost: None, heed_by: Moment::MAX, asked: false };
        sentence.set_deadline(told, now);
        sentence
    }

    /// The lock is held until `deadline`. Whoever was asked to end because of an earlier one is asked again.
    pub(super) fn set_deadline(&mut self, deadline: Option<Moment>, now: Moment) {
        let deadline = deadline.unwrap_or(Moment::MAX);
        if deadline != self.deadline {
            self.deadline = deadline;
            // A deadline that is closer than a ttl from the start is renewed in time all the same.
            self.notice = self.terms.grace.unwrap_or_default().min(deadline.since(now) / 4);
        }
        self.asked &= now >= self.ask_at();
    }

    /// The lock is lost already: now, or after the grace but not after the deadline.
    pub(super) fn lock_lost(&mut self, now: Moment) {
        self.lost.get_or_insert(now);
    }

    /// A SIGTERM was passed on to the command.
    pub(super) fn term_passed_on(&mut self, now: Moment) {
        self.heed_by = self.heed_by.min(now + self.terms.kill_after);
    }

    /// What is to be done now; asking is due once.
    pub(super) fn due(&mut self, now: Moment) -> Due {
        if now >= self.kill_at() {
            return Due::Kill(Why::Lock);
        }
        if now >= self.heed_by {
            return Due::Kill(Why::Term);
        }
        if now >= self.ask_at() && !self.asked {
            self.asked = true;
            return Due::Ask(Why::Lock);
        }
        Due::Nothing
    }

    /// When to look again.
    pub(super) fn next(&self) -> Moment {
        let kill_at = self.kill_at().min(self.heed_by);
        if self.asked { kill_at } else { self.ask_at().min(kill_at) }
    }

    fn ask_at(&self) -> Moment {
        if self.terms.grace.is_none() || !self.terms.enforced {
            return Moment::MAX;
        }
        let by_deadline =
            if self.deadline == Moment::MAX { Moment::MAX } else { self.deadline - self.notice };
        self.lost.map_or(by_deadline, |lost| lost.min(by_deadline))
    }

    fn kill_at(&self) -> Moment {
        if !self.terms.enforced {
            return Moment::MAX;
        }
        let by_deadline =
            if self.deadline == Moment::MAX { Moment::MAX } else { self.deadline - self.terms.lead };
        self.lost.map_or(by_deadline, |lost| (lost + self.terms.grace.unwrap_or_default()).min(by_deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + SECOND * u32::try_from(seconds).unwrap()
    }

    fn sentence(time: u32, ask_first: bool, enforced: bool, deadline: Option<u64>) -> Sentence {
        Sentence::new(Terms::new(SECOND * time, ask_first, enforced, SECOND * 10), deadline.map(at), at(0))
    }

    #[test]
    fn a_command_is_asked_before_the_deadline_and_killed_by_it() {
        let mut sentence = sentence(30, true, true, Some(100));
        assert_eq!(sentence.due(at(94)), Due::Nothing);
        assert_eq!(sentence.due(at(95)), Due::Ask(Why::Lock));
        assert_eq!(sentence.due(at(96)), Due::Nothing, "it is asked once");
        assert!(sentence.next() < at(100));
        assert_eq!(sentence.due(at(100)), Due::Kill(Why::Lock));
    }

    #[test]
    fn a_renewal_moves_the_sentence_and_the_next_one_asks_again() {
        let mut sentence = sentence(4, true, true, Some(100));
        assert_eq!(sentence.due(at(99)), Due::Ask(Why::Lock));
        sentence.set_deadline(Some(at(200)), at(99));
        assert_eq!(sentence.due(at(198)), Due::Nothing);
        assert_eq!(sentence.due(at(199)), Due::Ask(Why::Lock));
        sentence.set_deadline(None, at(199));
        assert_eq!(sentence.due(at(1000)), Due::Nothing);
    }

    #[test]
    fn a_deadline_that_is_always_close_is_no_reason_to_end() {
        let mut sentence = sentence(24, true, true, Some(8));
        for renewed in [4, 8, 12] {
            // Half of what was left is over, and a moment more.
            assert_eq!(sentence.due(at(renewed + 1)), Due::Nothing);
            sentence.set_deadline(Some(at(renewed + 8)), at(renewed + 1));
        }
        // Told again, which moves nothing.
        sentence.set_deadline(Some(at(20)), at(18));
        assert_eq!(sentence.due(at(18)), Due::Nothing);
        assert_eq!(sentence.due(at(19)), Due::Ask(Why::Lock));
    }

    #[test]
    fn a_lost_lock_leaves_the_grace_but_never_more_than_the_deadline() {
        let mut lost = sentence(40, true, true, Some(100));
        lost.lock_lost(at(50));
        assert_eq!(lost.due(at(50)), Due::Ask(Why::Lock));
        assert_eq!(lost.due(at(54)), Due::Nothing);
        assert_eq!(lost.due(at(55)), Due::Kill(Why::Lock));
        let mut without_grace = sentence(40, false, true, None);
        without_grace.lock_lost(at(50));
        assert_eq!(without_grace.due(at(50)), Due::Kill(Why::Lock));
        let mut near = sentence(40, true, true, Some(52));
        near.lock_lost(at(50));
        assert_eq!(near.due(at(52)), Due::Kill(Why::Lock));
    }

    #[test]
    fn another_locks_renewal_is_no_reprieve_for_a_lost_one() {
        let mut sentence = sentence(40, true, true, Some(100));
        sentence.lock_lost(at(50));
        assert_eq!(sentence.due(at(50)), Due::Ask(Why::Lock));
        sentence.set_deadline(Some(at(200)), at(51));
        assert_eq!(sentence.due(at(52)), Due::Nothing);
        assert_eq!(sentence.due(at(55)), Due::Kill(Why::Lock));
    }

    #[test]
    fn what_is_ignored_ends_only_by_a_signal() {
        let mut ignored = sentence(40, true, false, Some(10));
        ignored.lock_lost(at(50));
        assert_eq!(ignored.due(at(60)), Due::Nothing);
        ignored.term_passed_on(at(60));
        assert_eq!(ignored.due(at(70)), Due::Kill(Why::Term));
    }
}
