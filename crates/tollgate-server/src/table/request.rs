//! What clients ask for, after their front end has decoded and authorised it.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Details, LockName, Mode, OnDeadlock, OwnerId, Party, Token};

/// Where a request came from, and where its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The connection: unique for as long as the server runs.
    pub connection: u64,
    /// The request's number on its connection.
    pub request: u64,
}

/// A claim: its lock and its owner id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The lock.
    pub name: LockName,
    /// The owner id.
    pub owner: OwnerId,
}

/// A request to take a lock.
#[derive(Debug, Clone)]
pub struct Acquire {
    /// The lock and the owner id.
    pub key: Key,
    /// How the lock is shared.
    pub mode: Mode,
    /// How long the grant lives without an extend.
    pub ttl: Duration,
    /// For how long the client is willing to wait, from the arrival of this request on.
    pub wait: Duration,
    /// For how long this request may stay open.
    pub round: Duration,
    /// Whether the client knows the owner id, and so can come back for its claim.
    pub can_return: bool,
    /// Whether the lock is one of a set: its client hears of it when the set is complete, and until
    /// then the claim stays attached to this request.
    pub is_part: bool,
    /// Whether the client is told at once that its claim waits ([`Answer::Queued`](super::Answer::Queued)).
    pub hears_of_queue: bool,
    /// How long nothing is granted after a loss.
    pub lock_delay: Duration,
    /// The task or transaction that the claim belongs to.
    pub party: Option<Party>,
    /// What becomes of the claim if its waiting might never end.
    pub on_deadlock: OnDeadlock,
    /// The host and process of the client, shown by `GET /v1/lock`.
    pub details: Arc<Details>,
}

/// Everything that a client may ask for.
#[derive(Debug, Clone)]
pub enum Request {
    /// Take a lock.
    Acquire(Acquire),
    /// Renew a grant.
    Extend {
        /// The claim.
        key: Key,
        /// The new time to live.
        ttl: Duration,
        /// New details; `None` keeps the old ones.
        details: Option<Arc<Details>>,
    },
    /// Renew a grant, or keep the place of a claim that waits, and hear what becomes of it.
    Keep {
        /// The claim.
        key: Key,
        /// The new time to live of a grant; `None`: as before.
        ttl: Option<Duration>,
        /// For how long a claim that waits may hold the request open; zero answers at once.
        round: Duration,
    },
    /// The set that a lock is part of is complete, and its client hears of it.
    Hear(Key),
    /// The set that a lock is part of cannot be completed: ends the claim, unless its client has
    /// heard of a grant.
    Abandon(Key),
    /// Give a lock back.
    Release(Key),
    /// Remove a claim in whatever state it is, and refuse it for a minute.
    Withdraw(Key),
    /// Break a lock.
    Break {
        /// The lock.
        name: LockName,
        /// The holder's token.
        token: Token,
        /// Whether the holder is out at once, instead of being asked to leave.
        by_force: bool,
    },
    /// Compare a token with the mark of a resource, and raise the mark.
    Admit {
        /// The resource.
        resource: String,
        /// The token.
        token: Token,
        /// Whether the holder is exclusive: a shared token raises nothing.
        raises: bool,
    },
    /// Give only larger tokens from now on.
    RaiseFloor {
        /// The largest token that may be in circulation.
        token: Token,
    },
}
