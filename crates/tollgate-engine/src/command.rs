//! What goes in: commands, and the claim an acquire carries.

use std::time::Duration;

use tollgate_types::{LockName, Mode, OnDeadlock, OwnerId, Party, Token};

/// One attempt to take a lock. `D` is whatever the caller keeps about the holder; the engine only stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim<D> {
    /// Which lock.
    pub name: LockName,
    /// How it wants to share the lock.
    pub mode: Mode,
    /// Whose claim it is. Unique among the claims on one name.
    pub owner: OwnerId,
    /// How long the grant lives without an extend, counted from the moment of the grant.
    pub ttl: Duration,
    /// How long a waiting claim keeps its place without an extend; `None`: until it is withdrawn.
    pub wait_lease: Option<Duration>,
    /// How long nobody is granted the lock after this holder was lost by expiry or revoke.
    pub lock_delay: Duration,
    /// The task or transaction this claim belongs to.
    pub party: Option<Party>,
    /// What becomes of it if its waiting might never end. Means nothing to a claim without a party.
    pub on_deadlock: OnDeadlock,
    /// Kept with the claim and shown by [`Engine::inspect`](crate::Engine::inspect).
    pub details: D,
}

/// Something to do at a moment.
///
/// Whatever is due at that moment happens first: a command never sees a lease that has run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<D> {
    /// Take the lock: [`Granted`](crate::Answer::Granted), or [`Queued`](crate::Answer::Queued) if it may
    /// wait, or [`Busy`](crate::Answer::Busy) if not.
    ///
    /// Safe to repeat, and a repetition changes nothing, whatever else it says: an owner that already holds
    /// the lock is told its grant again; one that already waits keeps its place and is told `Queued`, or
    /// `Busy` if it now says `wait: false`.
    ///
    /// A claim that must not wait is told [`Deadlock`](crate::Answer::Deadlock).
    Acquire {
        /// What is wanted.
        claim: Claim<D>,
        /// Whether to queue if it cannot be granted at once.
        wait: bool,
    },
    /// Renew: a holder's lease then ends `ttl` from now, be that later or sooner than before. A waiting
    /// claim keeps its place for another [`wait_lease`](Claim::wait_lease), and will be granted for `ttl`.
    Extend {
        /// Which lock.
        name: LockName,
        /// Whose claim.
        owner: OwnerId,
        /// The new time to live.
        ttl: Duration,
        /// New details; `None` keeps the old ones.
        details: Option<D>,
    },
    /// Give the lock back. A claim that still waits is not touched: that is what withdraw is for.
    Release {
        /// Which lock.
        name: LockName,
        /// Whose grant.
        owner: OwnerId,
    },
    /// Leave, whether the claim still waits or has become the holder meanwhile.
    Withdraw {
        /// Which lock.
        name: LockName,
        /// Whose claim.
        owner: OwnerId,
    },
    /// An operator breaks a lock. By force the holder is out at once. Otherwise it is asked to leave: it keeps the lock until it
    /// releases it or its lease runs out, and the lease is not extended any more.
    Revoke {
        /// Which lock.
        name: LockName,
        /// Which grant, so that nobody breaks a successor's by mistake.
        token: Token,
        /// Whether the holder is out at once.
        by_force: bool,
    },
    /// Do what is due, and nothing else.
    Tick,
    /// From now on, issue only tokens above this one. Never lowers anything.
    RaiseFloor {
        /// The largest token that may be in circulation already.
        token: Token,
    },
}
