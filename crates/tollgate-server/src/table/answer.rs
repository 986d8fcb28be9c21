//! What clients are answered.

use std::time::Duration;

use tollgate_core::{Age, Conflict, Moment, Token};

/// A grant as its client hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token.
    pub token: Token,
    /// For how long the client may rely on the grant, from the moment on that it sent the request.
    pub valid: Duration,
    /// When the lease ends unless it is extended, by the engine's time.
    pub expires: Moment,
    /// The age of the claim's party, if it has one.
    pub age: Option<Age>,
    /// Whether the claim had been granted before this request.
    pub again: bool,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Acquire, extend, keep: the client holds the lock.
    Granted(Granted),
    /// Acquire, keep: the claim keeps its place for a while; repeat the request with the same
    /// owner id.
    Waiting {
        /// How many claims are ahead.
        ahead: usize,
    },
    /// Acquire of a client that [hears of the queue](super::Acquire::hears_of_queue): the claim waits,
    /// and its outcome is answered later.
    Queued {
        /// How many claims are ahead.
        ahead: usize,
        /// The age of the claim's party, if it has one.
        age: Option<Age>,
    },
    /// Acquire: other holders have the lock, and nothing is left of the claim.
    Busy {
        /// How many claims are ahead.
        ahead: usize,
        /// After how long it makes sense to try again, if that is known.
        retry_after: Option<Duration>,
    },
    /// Acquire: waiting would never end, and nothing is left of the claim.
    Deadlock(Conflict),
    /// Acquire: a later request of the same claim took over.
    Moved,
    /// Acquire of an owner id that another mode, lock or party was asked for with.
    Mismatch,
    /// Acquire: nothing is granted now.
    NotGranting,
    /// Acquire: no token is left.
    Exhausted,
    /// Extend, keep, release, break: there is no such grant, or not any more. Acquire: the owner id is over.
    Lost,
    /// Extend, keep: an operator asked the holder to leave.
    Revoked,
    /// Release: done.
    Released {
        /// Whether it was released by an earlier request.
        again: bool,
    },
    /// Hear: noted.
    Heard,
    /// Withdraw: nothing is left of the claim.
    Withdrawn,
    /// Raise the floor: done.
    FloorRaised,
    /// Break: the holder is out.
    Broken,
    /// Break: the holder is asked to leave.
    Asked,
    /// Admit: the token is admitted.
    Admitted {
        /// The mark of the resource now.
        mark: Token,
    },
    /// Admit: the token is stale.
    Stale {
        /// The mark of the resource.
        mark: Token,
    },
    /// [`Table::tell_mark`](super::Table::tell_mark): the mark, if the resource has one.
    Mark {
        /// The highest exclusive token that was admitted.
        mark: Option<Token>,
    },
}

impl Granted {
    /// What is left until `expires` for a request that arrived at `arrived`, which is not before it was sent, less a margin
    /// of 2 % and 5 ms for clocks that run at other speeds. `None` if nothing is left: then it must not be reported.
    pub(super) fn until(expires: Moment, arrived: Moment) -> Option<Duration> {
        tollgate_proto::valid(expires.since(arrived))
    }
}
