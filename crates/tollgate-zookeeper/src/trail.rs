//! Until when a session surely lives: by what ZooKeeper's leader has provably heard of it.
//!
//! A server that is cut off from its leader answers pings and reads for seconds, and tells its leader whom it has heard from only
//! when the leader asks, twice in every tick. And a leader that was deposed and does not know it yet answers a `sync`, and lets
//! sessions go on, without a majority. So a round of proof is a `sync` and then, when that is answered, a write; and it proves that
//! the leader knew of any request that was answered over the same connection a tick before the round began:
//!
//! 1. That request touched the session at the server before its answer came.
//! 2. The leader asks its servers every half tick, and a server reads what its leader sends in order. So when it has passed on
//!    the answer to the `sync` it has also been asked since 1, and has told the leader.
//! 3. A leader reads what a server sends in order. So when it takes the write it has been told.
//! 4. The write is answered only when a majority has it. So the leader was no deposed one then. Whoever leads after it begins
//!    later than that, and gives every session its whole time from there.
//!
//! The answer to a write alone would prove the same two rounds later instead of one: with a `sync` before it, a proof is between
//! one and two intervals old instead of between two and three, for as many writes. A `sync` costs no disk.
//!
//! A server that lets a session go on over another connection has asked its leader, which was touched by that. A server that
//! loses its leader closes its connections, so that the first write over the new connection is committed by the same leader:
//! then the time counts from the handshake.
//!
//! Not covered: observers that have no connection to the leader, but to another server (`observerMasterPort`).

use std::time::Duration;

use tollgate_core::{Deadline, Moment};

/// When requests were sent that were answered.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    /// When the leader heard of the session, at the earliest.
    heard: Moment,
    /// How long the session lives from there: the least that any of its connections was told.
    ///
    /// It never grows again: a server that it left may tell the leader late that it was there, for as long as it had said.
    ttl: Duration,
    tick: Duration,
    /// The number of the present connection.
    connection: u64,
    /// Its handshake, until something was committed over it.
    arrived: Option<Moment>,
    /// What the next round can prove.
    touch: Option<Touch>,
}

/// A request that was answered over the present connection.
#[derive(Debug, Clone, Copy)]
struct Touch {
    sent: Moment,
    answered: Moment,
}

/// A `sync` and a write that were answered, one after the other, over one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    /// When the `sync` was sent.
    pub(crate) began: Moment,
    /// When the write was sent.
    pub(crate) sent: Moment,
    /// When that was answered.
    pub(crate) answered: Moment,
}

/// A deadline that was given out is no longer safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsafe;

impl Trail {
    /// Of a session that was asked for at `asked`, over its first connection: a majority has to agree before it is there.
    pub(crate) fn new(asked: Moment, ttl: Duration, tick: Duration) -> Self {
        Self { heard: asked, ttl, tick, connection: 1, arrived: None, touch: None }
    }

    /// A round was answered over the present connection.
    pub(crate) fn proved(&mut self, round: Round) {
        if let Some(arrived) = self.arrived.take() {
            self.heard = self.heard.max(arrived);
        }
        match self.touch {
            // It came too soon to say anything of that request, which stays what the next round can prove.
            Some(touch) if round.began < touch.answered + self.tick => return,
            Some(touch) => self.heard = self.heard.max(touch.sent),
            None => {}
        }
        self.touch = Some(Touch { sent: round.sent, answered: round.answered });
    }

    /// The session goes on over the connection with the number `connection`, which was asked for at `asked`, and lives for
    /// `ttl` now.
    ///
    /// # Errors
    /// If it lives for less than before, the leader ends it `ttl` after the handshake at the earliest, whatever it was told
    /// before. A deadline that was given out counts from `heard`, with the time it had then. If the latest of those is not
    /// later than one that counts from the handshake with the new time, it is still safe, as the leader was touched no earlier
    /// than `asked`. Otherwise it is not, and what was given out cannot be taken back: the session is over.
    pub(crate) fn moved(&mut self, connection: u64, asked: Moment, ttl: Duration) -> Result<(), Unsafe> {
        (self.connection, self.arrived, self.touch) = (connection, Some(asked), None);
        if ttl >= self.ttl {
            return Ok(());
        }
        let given = end(self.heard, self.ttl, self.tick);
        self.ttl = ttl;
        if given > end(asked, ttl, self.tick) { Err(Unsafe) } else { Ok(()) }
    }

    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// From when on a round proves more than is known.
    pub(crate) fn ready(&self) -> Moment {
        match (self.arrived, self.touch) {
            (None, Some(touch)) => touch.answered + self.tick,
            _ => Moment::ZERO,
        }
    }

    /// Whether nothing was committed over the present connection yet.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.arrived.is_some()
    }

    /// When the leader heard of the session, at the earliest.
    pub(crate) fn heard(&self) -> Moment {
        self.heard
    }

    /// How long it lives from there.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }
}

/// Until when a session that ZooKeeper ends after `ttl` surely lives, if its leader heard of it at `heard` or later.
pub(crate) fn deadline(heard: Moment, ttl: Duration, tick: Duration) -> Deadline {
    Deadline::At(end(heard, ttl, tick))
}

fn end(heard: Moment, ttl: Duration, tick: Duration) -> Moment {
    let lives = ttl.saturating_sub(tick);
    heard + lives.saturating_sub(Deadline::margin(lives))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(2);
    const TTL: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A round in which everything takes no time.
    fn round(seconds: u64) -> Round {
        Round { began: at(seconds), sent: at(seconds), answered: at(seconds) }
    }

    #[test]
    fn a_round_proves_the_one_before() {
        let mut trail = Trail::new(at(100), TTL, TICK);
        for (sent, heard) in [(103, 100), (106, 103), (109, 106), (112, 109)] {
            trail.proved(round(sent));
            assert_eq!(trail.heard(), at(heard));
        }
    }

    #[test]
    fn what_is_less_than_a_tick_apart_proves_nothing() {
        let mut trail = Trail::new(at(100), TTL, TICK);
        for (sent, heard) in [(103, 100), (104, 100), (105, 103), (106, 103), (107, 105)] {
            trail.proved(round(sent));
            assert_eq!(trail.heard(), at(heard), "at {sent}");
        }
        // The tick counts from the answer: until then nobody knows when the server was touched.
        let mut slow = Trail::new(at(100), TTL, TICK);
        slow.proved(Round { began: at(103), sent: at(103), answered: at(108) });
        assert_eq!(slow.ready(), at(110));
        slow.proved(round(109));
        assert_eq!(slow.heard(), at(100));
        slow.proved(round(110));
        assert_eq!(slow.heard(), at(103));
    }

    #[test]
    fn another_connection_proves_nothing_before_something_is_committed_and_takes_nothing_back() {
        let mut trail = Trail::new(at(100), TTL, TICK);
        for sent in [103, 106, 109] {
            trail.proved(round(sent));
        }
        assert_eq!(trail.heard(), at(106));
        assert_eq!(trail.moved(2, at(112), TTL), Ok(()));
        assert_eq!((trail.heard(), trail.is_doubtful(), trail.ready()), (at(106), true, Moment::ZERO));
        trail.proved(round(113));
        assert_eq!((trail.heard(), trail.is_doubtful()), (at(112), false));
        trail.proved(round(116));
        assert_eq!(trail.heard(), at(113));
    }

    #[test]
    fn a_time_that_shrinks_ends_a_session_whose_deadlines_are_too_late() {
        let moved = |asked: u64, ttl: u64| {
            let mut trail = Trail::new(at(100), TTL, TICK);
            let moved = trail.moved(2, at(asked), secs(ttl));
            (moved, trail.ttl())
        };
        // Given out: until 127 or so.
        assert_eq!(moved(110, 10), (Err(Unsafe), secs(10)));
        assert_eq!(moved(119, 10), (Err(Unsafe), secs(10)));
        assert_eq!(moved(120, 10), (Ok(()), secs(10)));
        assert_eq!(moved(101, 60), (Ok(()), TTL));
    }

    #[test]
    fn a_time_that_has_shrunk_does_not_grow_again() {
        let mut trail = Trail::new(at(100), TTL, TICK);
        assert_eq!(trail.moved(2, at(120), secs(10)), Ok(()));
        trail.proved(round(121));
        assert_eq!(trail.moved(3, at(122), TTL), Ok(()));
        trail.proved(round(123));
        assert_eq!((trail.heard(), trail.ttl()), (at(122), secs(10)));
    }

    #[test]
    fn a_deadline_is_a_tick_and_the_margin_earlier() {
        let expected = Deadline::counted_from(at(100), secs(28));
        assert_eq!(deadline(at(100), TTL, TICK), expected);
    }
}
