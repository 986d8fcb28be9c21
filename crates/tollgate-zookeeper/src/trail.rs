//! Until when a session surely lives: by what ZooKeeper's leader has provably heard of it.
//!
//! A server that is cut off from its leader answers pings and reads for seconds, and a `sync`, which the leader itself has to
//! answer, does not touch the session there: the server tells its leader whom it has heard from when the leader asks, twice in
//! every tick. So the time counts from the third-last `sync` that was answered over one connection. It touched the session at
//! the server; by the second, a tick later, the server had told the leader; and the third proves that this has arrived.
//!
//! A session that goes on over another connection was asked for at the leader, too, after the old one was lost.

use std::collections::VecDeque;
use std::time::Duration;

use tollgate_core::{Deadline, Moment};

/// How many of them prove that the first was heard.
const ENOUGH: usize = 3;

/// When requests were sent that were answered.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    /// When the leader heard of the session, at the earliest.
    heard: Moment,
    /// The last ones over the present connection, each at least a tick after the one before.
    recent: VecDeque<Moment>,
    tick: Duration,
}

impl Trail {
    /// Of a session that was asked for at `asked`: it is made by the leader.
    pub(crate) fn new(asked: Moment, tick: Duration) -> Self {
        Self { heard: asked, recent: VecDeque::with_capacity(ENOUGH), tick }
    }

    /// A `sync` that was sent at `sent` was answered over the same connection as the last one.
    pub(crate) fn note(&mut self, sent: Moment) {
        if self.recent.back().is_some_and(|last| sent < *last + self.tick) {
            return;
        }
        if self.recent.len() == ENOUGH {
            self.recent.pop_front();
        }
        self.recent.push_back(sent);
        if let (ENOUGH, Some(first)) = (self.recent.len(), self.recent.front()) {
            self.heard = self.heard.max(*first);
        }
    }

    /// The connection is lost.
    pub(crate) fn lost(&mut self) {
        self.recent.clear();
    }

    /// The session goes on over another connection. The one before was there at `then`.
    pub(crate) fn moved(&mut self, then: Moment) {
        self.recent.clear();
        self.heard = self.heard.max(then);
    }

    /// Whether too few have been answered over this connection.
    pub(crate) fn is_young(&self) -> bool {
        self.recent.len() < ENOUGH
    }

    /// When the leader heard of the session, at the earliest.
    pub(crate) fn heard(&self) -> Moment {
        self.heard
    }
}

/// Until when a session that ZooKeeper ends after `ttl` surely lives, if its leader heard of it at `heard` or later.
pub(crate) fn deadline(heard: Moment, ttl: Duration, tick: Duration) -> Deadline {
    Deadline::counted_from(heard, ttl.saturating_sub(tick))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_third_last_counts() {
        let mut trail = Trail::new(at(100), TICK);
        for (sent, heard) in [(103, 100), (106, 100), (109, 103), (112, 106)] {
            trail.note(at(sent));
            assert_eq!(trail.heard(), at(heard));
        }
    }

    #[test]
    fn what_is_less_than_a_tick_apart_proves_nothing() {
        let mut trail = Trail::new(at(100), TICK);
        for sent in [103, 104, 105, 106, 107] {
            trail.note(at(sent));
        }
        // Only 103, 105 and 107 count.
        assert_eq!(trail.heard(), at(103));
    }

    #[test]
    fn another_connection_starts_anew_and_takes_nothing_back() {
        let mut trail = Trail::new(at(100), TICK);
        for sent in [103, 106, 109] {
            trail.note(at(sent));
        }
        trail.lost();
        assert_eq!(trail.heard(), at(103));
        trail.moved(at(110));
        assert_eq!(trail.heard(), at(110));
        trail.note(at(112));
        trail.note(at(115));
        assert_eq!(trail.heard(), at(110));
        trail.note(at(118));
        assert_eq!(trail.heard(), at(112));
    }

    #[test]
    fn a_deadline_is_a_tick_and_the_margin_earlier() {
        let expected = Deadline::counted_from(at(100), Duration::from_secs(28));
        assert_eq!(deadline(at(100), Duration::from_secs(30), TICK), expected);
    }
}
