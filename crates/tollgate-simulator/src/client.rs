//! A client: takes a lock, renews it, releases it, gives up, pauses and repeats, as ours do.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Details, LockName, Mode, OnDeadlock, OwnerId};
use tollgate_server::table::{Acquire, Key, Request};

use crate::random::Random;
use crate::server::Rate;

/// What a client is about.
#[derive(Debug, Clone)]
pub(crate) enum Doing {
    /// Nothing.
    Idle,
    /// It wants a lock, and asks with the same owner id until it is answered.
    Acquiring { claim: Wanted, gives_up: u64 },
    /// It holds a lock, until its own deadline.
    Holding { claim: Wanted, release_at: u64 },
    /// It withdraws a claim until that is answered.
    Withdrawing { claim: Wanted },
    /// It releases a lock until that is answered.
    Releasing { claim: Wanted },
}

/// A claim as its client wants it.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) lock: u64,
    pub(crate) owner: u128,
    pub(crate) mode: Mode,
    /// In nanoseconds.
    pub(crate) ttl: u64,
    pub(crate) lock_delay: u64,
    /// When it was first asked for.
    pub(crate) asked_at: u64,
}

/// One client.
pub(crate) struct Client {
    pub(crate) rate: Rate,
    pub(crate) doing: Doing,
    /// The request that it waits for, and when it was sent.
    pub(crate) open: Option<(u64, u64)>,
    /// It does nothing before this real time.
    pub(crate) paused_until: u64,
}

pub(crate) const SECOND: u64 = 1_000_000_000;

impl Wanted {
    pub(crate) fn random(random: &mut Random, locks: u64, asked_at: u64) -> Self {
        let mode = match random.below(6) {
            0 => Mode::Shared,
            _ => Mode::Exclusive,
        };
        Self {
            lock: random.below(locks),
            owner: random.bits(),
            mode,
            ttl: random.between(2, 12) * SECOND,
            asked_at,
            lock_delay: if random.one_in(5) { random.between(1, 8) * SECOND } else { 0 },
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key { name: name(self.lock), owner: OwnerId::from_bits(self.owner) }
    }

    /// The request to take it, or to ask again.
    pub(crate) fn acquire(&self, wait: u64) -> Request {
        Request::Acquire(Acquire {
            key: self.key(),
            mode: self.mode,
            ttl: Duration::from_nanos(self.ttl),
            wait: Duration::from_nanos(wait),
            round: Duration::from_secs(5),
            can_return: true,
            is_part: false,
            hears_of_queue: false,
            lock_delay: Duration::from_nanos(self.lock_delay),
            party: None,
            on_deadlock: OnDeadlock::Timeout,
            details: Arc::new(Details::default()),
        })
    }

    /// The request to renew it, for `times` its time to live.
    pub(crate) fn extend(&self, times: u64) -> Request {
        Request::Extend { key: self.key(), ttl: Duration::from_nanos(self.ttl * times), details: None }
    }
}

pub(crate) fn name(lock: u64) -> LockName {
    LockName::new(format!("lock {lock}")).expect("it is a valid name")
}
