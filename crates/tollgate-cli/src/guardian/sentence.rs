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

    /// For a lock with this ttl.
    pub(crate) fn new(ttl: Duration, ask_first: bool, enforced: bool, kill_after: Duration) -> Self {
        Self {
            grace: ask_first.then(|| (ttl / 4).min(Self::MOST_GRACE)),
            lead: (ttl / 20).min(Self::MOST_LEAD),
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
    ask_at: Moment,
    kill_at: Moment,
    /// When it has had enough time after a SIGTERM.
    heed_by: Moment,
    asked: bool,
}

impl Sentence {
    pub(super) fn new(terms: Terms, deadline: Option<Moment>) -> Self {
        let never = Moment::MAX;
        let mut sentence = Self { terms, ask_at: never, kill_at: never, heed_by: never, asked: false };
        sentence.set_deadline(deadline);
        sentence
    }

    /// The lock is held until `deadline`.
    pub(super) fn set_deadline(&mut self, deadline: Option<Moment>) {
        let deadline = deadline.filter(|_| self.terms.enforced).unwrap_or(Moment::MAX);
        self.kill_at = if deadline == Moment::MAX { deadline } else { deadline - self.terms.lead };
        self.ask_at = match self.terms.grace {
            Some(grace) if deadline != Moment::MAX => deadline - grace,
            _ => Moment::MAX,
        };
    }

    /// The lock is lost already: now, or after the grace but not after the deadline.
    pub(super) fn lock_lost(&mut self, now: Moment) {
        if self.terms.enforced {
            self.ask_at = now;
            self.kill_at = self.kill_at.min(now + self.terms.grace.unwrap_or_default());
        }
    }

    /// A SIGTERM was passed on to the command.
    pub(super) fn term_passed_on(&mut self, now: Moment) {
        self.heed_by = self.heed_by.min(now + self.terms.kill_after);
    }

    /// What is to be done now; asking is due once.
    pub(super) fn due(&mut self, now: Moment) -> Due {
        if now >= self.kill_at {
            return Due::Kill(Why::Lock);
        }
        if now >= self.heed_by {
            return Due::Kill(Why::Term);
        }
        if now >= self.ask_at && !self.asked {
            self.asked = true;
            return Due::Ask(Why::Lock);
        }
        Due::Nothing
    }

    /// When to look again.
    pub(super) fn next(&self) -> Moment {
        let kill_at = self.kill_at.min(self.heed_by);
        if self.asked { kill_at } else { self.ask_at.min(kill_at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + SECOND * u32::try_from(seconds).unwrap()
    }

    #[test]
    fn a_command_is_asked_before_the_deadline_and_killed_by_it() {
        let mut sentence = Sentence::new(Terms::new(SECOND * 30, true, true, SECOND * 10), Some(at(100)));
        assert_eq!(sentence.due(at(94)), Due::Nothing);
        assert_eq!(sentence.due(at(95)), Due::Ask(Why::Lock));
        assert_eq!(sentence.due(at(96)), Due::Nothing, "it is asked once");
        assert!(sentence.next() < at(100));
        assert_eq!(sentence.due(at(100)), Due::Kill(Why::Lock));
    }

    #[test]
    fn a_renewal_moves_the_sentence() {
        let mut sentence = Sentence::new(Terms::new(SECOND * 4, true, true, SECOND * 10), Some(at(100)));
        sentence.set_deadline(Some(at(200)));
        assert_eq!(sentence.due(at(198)), Due::Nothing);
        assert_eq!(sentence.due(at(199)), Due::Ask(Why::Lock));
        sentence.set_deadline(None);
        assert_eq!(sentence.due(at(1000)), Due::Nothing);
    }

    #[test]
    fn a_lost_lock_leaves_the_grace_but_never_more_than_the_deadline() {
        let mut sentence = Sentence::new(Terms::new(SECOND * 40, true, true, SECOND * 10), Some(at(100)));
        sentence.lock_lost(at(50));
        assert_eq!(sentence.due(at(50)), Due::Ask(Why::Lock));
        assert_eq!(sentence.due(at(54)), Due::Nothing);
        assert_eq!(sentence.due(at(55)), Due::Kill(Why::Lock));
        let mut sentence = Sentence::new(Terms::new(SECOND * 40, false, true, SECOND * 10), None);
        sentence.lock_lost(at(50));
        assert_eq!(sentence.due(at(50)), Due::Kill(Why::Lock));
        let mut ignored = Sentence::new(Terms::new(SECOND * 40, true, false, SECOND * 10), Some(at(10)));
        ignored.lock_lost(at(50));
        assert_eq!(ignored.due(at(60)), Due::Nothing);
        ignored.term_passed_on(at(60));
        assert_eq!(ignored.due(at(70)), Due::Kill(Why::Term));
    }
}
