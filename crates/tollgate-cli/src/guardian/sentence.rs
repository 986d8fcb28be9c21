//! When a command is asked to end, and when it is killed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::Moment;

/// How a command is ended when its lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// The time between SIGTERM and SIGKILL; `None`: SIGKILL without SIGTERM.
    pub(crate) grace: Option<Duration>,
    /// How long before the deadline the command is killed, so that it is gone by then.
    pub(crate) lead: Duration,
    /// Whether the command is ended at a deadline at all.
    pub(crate) enforced: bool,
    /// How long the command may run after a SIGTERM that was passed on.
    pub(crate) kill_after: Duration,
}

impl Terms {
    /// The longest grace, and the longest lead.
    const MOST_GRACE: Duration = Duration::from_secs(5);
    const MOST_LEAD: Duration = Duration::from_millis(100);

    /// The terms for a lock that is held for `time` without a renewal: its ttl, or --max-hold if
    /// that is shorter.
    pub(crate) fn new(time: Duration, ask_first: bool, enforced: bool, kill_after: Duration) -> Self {
        Self {
            grace: ask_first.then(|| (time / 4).min(Self::MOST_GRACE)),
            lead: (time / 20).min(Self::MOST_LEAD),
            enforced,
            kill_after,
        }
    }
}

/// The next action on a command.
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
    /// It did not end after a SIGTERM that was passed on.
    Term,
}

/// When the command has to end, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct Sentence {
    terms: Terms,
    /// When the lock ends unless it is renewed.
    deadline: Moment,
    /// How long before the deadline the command is asked to end.
    notice: Duration,
    /// When the command has to be gone because the lock is lost for good, so that no renewal helps.
    lost: Option<Moment>,
    /// When the time after a SIGTERM that was passed on is over.
    heed_by: Moment,
    asked: bool,
}

impl Sentence {
    pub(super) fn new(terms: Terms, first_deadline: Option<Moment>, now: Moment) -> Self {
        let (deadline, notice) = (Moment::ZERO, Duration::ZERO);
        let mut sentence = Self { terms, deadline, notice, lost: None, heed_by: Moment::MAX, asked: false };
        sentence.set_deadline(first_deadline, now);
        sentence
    }

    /// The lock is held until `deadline`. A command that was asked to end keeps the deadline that
    /// it was asked for: a later successful renewal does not revoke the decision.
    pub(super) fn set_deadline(&mut self, deadline: Option<Moment>, now: Moment) {
        let deadline = deadline.unwrap_or(Moment::MAX);
        if self.asked && deadline >= self.deadline {
            return;
        }
        if deadline != self.deadline {
            self.deadline = deadline;
            // A deadline that is less than a ttl away from the start is still renewed in time.
            self.notice = self.terms.grace.unwrap_or_default().min(deadline.since(now) / 4);
        }
    }

    /// The lock is lost. If the engine still keeps it for this holder, as after an operator asked
    /// the holder to leave, the command has its grace, but not beyond the deadline. Otherwise the
    /// next holder may already have the lock, and the command is killed at once.
    pub(super) fn lock_lost(&mut self, still_kept: bool, now: Moment) {
        let grace = self.terms.grace.filter(|_| still_kept).unwrap_or_default();
        let by = now + grace;
        self.lost = Some(self.lost.map_or(by, |lost| lost.min(by)));
    }

    /// A SIGTERM was passed on to the command.
    pub(super) fn term_passed_on(&mut self, now: Moment) {
        self.heed_by = self.heed_by.min(now + self.terms.kill_after);
    }

    /// The action that is due now; asking is due once.
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

    /// When the next action may be due.
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
        // A lost lock is a reason to ask at once, however long the command may still run.
        self.lost.map_or(by_deadline, |_| Moment::ZERO)
    }

    fn kill_at(&self) -> Moment {
        if !self.terms.enforced {
            return Moment::MAX;
        }
        let by_deadline =
            if self.deadline == Moment::MAX { Moment::MAX } else { self.deadline - self.terms.lead };
        self.lost.map_or(by_deadline, |lost| lost.min(by_deadline))
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
    fn a_renewal_moves_the_sentence() {
        let mut sentence = sentence(4, true, true, Some(100));
        sentence.set_deadline(Some(at(200)), at(98));
        assert_eq!(sentence.due(at(198)), Due::Nothing);
        assert_eq!(sentence.due(at(199)), Due::Ask(Why::Lock));
    }

    #[test]
    fn a_command_that_was_asked_to_end_is_gone_by_the_deadline_it_was_asked_for() {
        let mut sentence = sentence(4, true, true, Some(100));
        assert_eq!(sentence.due(at(99)), Due::Ask(Why::Lock));
        sentence.set_deadline(Some(at(200)), at(99));
        sentence.set_deadline(None, at(99));
        assert_eq!(sentence.due(at(99)), Due::Nothing);
        assert_eq!(sentence.due(at(100)), Due::Kill(Why::Lock));
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
    fn a_lock_that_is_kept_for_its_holder_leaves_the_grace_but_never_more_than_the_deadline() {
        let mut lost = sentence(40, true, true, Some(100));
        lost.lock_lost(true, at(50));
        assert_eq!(lost.due(at(50)), Due::Ask(Why::Lock));
        assert_eq!(lost.due(at(54)), Due::Nothing);
        assert_eq!(lost.due(at(55)), Due::Kill(Why::Lock));
        let mut without_grace = sentence(40, false, true, None);
        without_grace.lock_lost(true, at(50));
        assert_eq!(without_grace.due(at(50)), Due::Kill(Why::Lock));
        let mut near = sentence(40, true, true, Some(52));
        near.lock_lost(true, at(50));
        assert_eq!(near.due(at(52)), Due::Kill(Why::Lock));
    }

    #[test]
    fn a_lock_that_is_gone_leaves_no_grace() {
        let mut gone = sentence(40, true, true, Some(100));
        gone.lock_lost(false, at(50));
        assert_eq!(gone.due(at(50)), Due::Kill(Why::Lock));
        let mut taken_away_later = sentence(40, true, true, Some(100));
        taken_away_later.lock_lost(true, at(50));
        assert_eq!(taken_away_later.due(at(50)), Due::Ask(Why::Lock));
        taken_away_later.lock_lost(false, at(51));
        assert_eq!(taken_away_later.due(at(51)), Due::Kill(Why::Lock));
        let mut not_enforced = sentence(40, true, false, Some(100));
        not_enforced.lock_lost(false, at(50));
        assert_eq!(not_enforced.due(at(50)), Due::Nothing);
    }

    #[test]
    fn another_locks_renewal_is_no_reprieve_for_a_lost_one() {
        let mut sentence = sentence(40, true, true, Some(100));
        sentence.lock_lost(true, at(50));
        assert_eq!(sentence.due(at(50)), Due::Ask(Why::Lock));
        sentence.set_deadline(Some(at(200)), at(51));
        assert_eq!(sentence.due(at(52)), Due::Nothing);
        assert_eq!(sentence.due(at(55)), Due::Kill(Why::Lock));
    }

    #[test]
    fn what_is_ignored_ends_only_by_a_signal() {
        let mut ignored = sentence(40, true, false, Some(10));
        ignored.lock_lost(false, at(50));
        assert_eq!(ignored.due(at(60)), Due::Nothing);
        ignored.term_passed_on(at(60));
        assert_eq!(ignored.due(at(70)), Due::Kill(Why::Term));
    }
}
