//! What comes out: the answer to a command, and what it meant for others.

use std::time::Duration;

use tollgate_types::{Age, Conflict, LockName, Mode, Moment, OwnerId, Token};

/// Everything one command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    /// For whoever sent the command.
    pub answer: Answer,
    /// For the owners named in them, in the order in which they happened. What was due comes first, what
    /// the command caused comes after; a claim that the command itself took is told in the answer only.
    pub events: Vec<Event>,
}

/// A claim that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The number of this passage.
    pub token: Token,
    /// When it ends unless extended.
    pub expires: Moment,
    /// The age of the claim's party, if it has one, to be kept across retries.
    pub age: Option<Age>,
}

/// What a command answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Acquire: the lock is yours.
    Granted(Granted),
    /// Acquire: the claim waits.
    Queued {
        /// How many claims are ahead, at most: those ahead on arrival without the holders that left since.
        ahead: usize,
        /// The age of the claim's party, if it has one, to be kept across retries.
        age: Option<Age>,
    },
    /// Acquire: not now. A new claim leaves no trace; one that waits already keeps its place.
    Busy {
        /// How many claims, holding or waiting, are in the way; counted as in [`Queued`](Self::Queued).
        ahead: usize,
        /// When to look again at the earliest, unless something is released before. A hint.
        retry_after: Option<Duration>,
    },
    /// Acquire: the claim would wait, and must not. Nothing is left of it.
    Deadlock {
        /// Why.
        conflict: Conflict,
        /// The age of the claim's party, to be kept across retries.
        age: Option<Age>,
    },
    /// Acquire: no token is left below 2^53. Nothing is granted any more, nobody new may wait, and those
    /// who wait stay where they are.
    Exhausted,
    /// Acquire of a new claim: nothing is granted now ([`Engine::set_granting`](crate::Engine::set_granting)), and the claim
    /// leaves no trace.
    NotGranting,
    /// Extend of a holder.
    Extended {
        /// When the lease now ends.
        expires: Moment,
    },
    /// Extend of a claim that waits.
    StillWaiting {
        /// How many claims are ahead, counted as in [`Queued`](Self::Queued).
        ahead: usize,
        /// When its place is lost unless extended again; `None`: never.
        expires: Option<Moment>,
    },
    /// Release: done.
    Released {
        /// The token of the grant that ended.
        token: Token,
    },
    /// Withdraw: the claim is gone, from the queue or from the lock.
    Withdrawn,
    /// Extend, release, withdraw, revoke: there is no such claim, or no longer.
    NotFound,
    /// Revoke by force: done. The holder is named by an [`Event::Revoked`].
    Revoked,
    /// Revoke: the holder is asked to leave, and named by an [`Event::AskedToLeave`] the first time. Extend: the grant was
    /// revoked, and is not extended.
    AskedToLeave,
    /// Tick: done.
    Ticked,
    /// Raise-floor: done.
    FloorRaised,
}

/// Something that happened to a claim without its own doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A waiting claim became a holder.
    Granted {
        /// Which lock.
        name: LockName,
        /// Whose claim.
        owner: OwnerId,
        /// The number of this passage.
        token: Token,
        /// How it holds the lock.
        mode: Mode,
        /// When it ends unless extended.
        expires: Moment,
        /// The age of the claim's party, if it has one.
        age: Option<Age>,
    },
    /// A holder's lease ran out.
    Expired {
        /// Which lock.
        name: LockName,
        /// Whose grant.
        owner: OwnerId,
        /// The token it had.
        token: Token,
    },
    /// A waiting claim's [`wait_lease`](crate::Claim::wait_lease) ran out. It was never granted.
    Abandoned {
        /// Which lock.
        name: LockName,
        /// Whose claim.
        owner: OwnerId,
    },
    /// A waiting claim was removed because of a deadlock, or of one that might be.
    Deadlock {
        /// Which lock.
        name: LockName,
        /// Whose claim.
        owner: OwnerId,
        /// Why.
        conflict: Conflict,
    },
    /// An operator asked the holder to leave. It still holds the lock.
    AskedToLeave {
        /// Which lock.
        name: LockName,
        /// Whose grant.
        owner: OwnerId,
        /// The token it has.
        token: Token,
    },
    /// An operator took the lock away, or an older party by [`WoundWait`](tollgate_types::OnDeadlock::WoundWait).
    Revoked {
        /// Which lock.
        name: LockName,
        /// Whose grant.
        owner: OwnerId,
        /// The token it had.
        token: Token,
    },
}

impl Event {
    /// Whether it happened to this claim.
    pub(crate) fn is_about(&self, name: &LockName, owner: OwnerId) -> bool {
        let (Self::Granted { name: other, owner: whose, .. }
        | Self::Expired { name: other, owner: whose, .. }
        | Self::Abandoned { name: other, owner: whose }
        | Self::Deadlock { name: other, owner: whose, .. }
        | Self::AskedToLeave { name: other, owner: whose, .. }
        | Self::Revoked { name: other, owner: whose, .. }) = self;
        (other, *whose) == (name, owner)
    }
}
