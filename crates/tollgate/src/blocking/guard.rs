//! A held lock, and a view of it.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tollgate_core::{
    Fence, Grant, GuardState, Keeper, LockName, LossCause, Mode, Moment, Release, Result, Token,
};

/// A held lock; see [`tollgate::Guard`](crate::Guard). Dropping it releases the lock in the background.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// use std::time::Duration;
/// use tollgate::Release;
///
/// let locks = tollgate::blocking::connect("memory:blocking-guard")?;
/// let guard = locks.lock("orders/42").acquire()?;
/// guard.on_lost(|cause| eprintln!("stop everything: {cause}"));
/// guard.ensure(Duration::from_secs(5))?;
/// assert_eq!(guard.release()?, Release::Released);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[must_use = "dropping a guard releases the lock"]
#[derive(Debug)]
pub struct Guard {
    inner: crate::Guard,
    lease: Lease,
}

impl Guard {
    pub(super) fn new(inner: crate::Guard, keeper: Keeper) -> Self {
        let lease = Lease { inner: inner.lease(), keeper };
        Self { inner, lease }
    }

    /// A view that cannot release the lock.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Gives the lock back and waits for the engine's answer: `AlreadyLost` if the lock was lost before.
    pub fn release(self) -> Result<Release> {
        self.lease.keeper.block_on(self.inner.release())
    }

    /// Gives the lock back after work that needed it to the end: fails with `Lost` if it had not lasted until now.
    pub fn finish(self) -> Result<()> {
        self.lease.keeper.block_on(self.inner.finish())
    }

    /// Turns the guard into a grant that can be stored, sent, and [adopted](super::Locks::adopt) elsewhere.
    pub fn into_grant(self) -> Result<Grant> {
        self.inner.into_grant()
    }

    /// The grant as it was given; it contains the owner id, and whoever has that can release the lock.
    pub fn grant(&self) -> &Grant {
        self.inner.grant()
    }

    /// Lets the lock go into the hands of a process that [inherits](super::Locks::inherit) the open file; only
    /// where the lock hangs on one (`file:`).
    pub fn bequeath(self) -> Result<(Grant, OwnedFd)> {
        self.inner.bequeath()
    }

    /// Calls `callback` once, on a thread of its own, when the lock is lost; not when it is released.
    pub fn on_lost(&self, callback: impl FnOnce(LossCause) + Send + 'static) {
        self.inner.on_lost(callback);
    }

    /// An open file that a child process can inherit; only where the lock hangs on one (`file:`).
    pub fn descriptor(&self) -> Result<OwnedFd> {
        self.inner.descriptor()
    }
}

impl Deref for Guard {
    type Target = Lease;
    fn deref(&self) -> &Lease {
        &self.lease
    }
}

/// A view of a held lock: everything a [`Guard`] tells, without the power to release it.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// use tollgate::{GuardState, LossCause};
///
/// let locks = tollgate::blocking::connect("memory:blocking-lease")?;
/// let guard = locks.lock("orders/42").acquire()?;
/// let lease = guard.lease();
/// assert_eq!(lease.state(), GuardState::Held);
/// guard.release()?;
/// assert_eq!(lease.lost(), LossCause::Released);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Lease {
    pub(super) inner: crate::Lease,
    keeper: Keeper,
}

impl Lease {
    /// Which lock.
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// How it is shared.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// The bare token, whether or not the lock is still held. Use [`fence`](Self::fence) for writes.
    pub fn token(&self) -> Token {
        self.inner.token()
    }

    /// The token to show to a resource, after re-checking the deadline.
    pub fn fence(&self) -> Result<Fence> {
        self.inner.fence()
    }

    /// Whether the lock may be relied on. Reads the clock, so it never says `Held` past the deadline.
    pub fn state(&self) -> GuardState {
        self.inner.state()
    }

    /// Fails with `Lost`, and the cause, unless the lock is held.
    pub fn check(&self) -> Result<()> {
        self.inner.check()
    }

    /// The time left until the lock is lost unless it is renewed; `None` where nothing expires.
    pub fn remaining(&self) -> Option<Duration> {
        self.inner.remaining()
    }

    /// The moment at which the lock is lost unless it is renewed; `None` where nothing expires.
    pub fn deadline(&self) -> Option<Moment> {
        self.inner.deadline()
    }

    /// Makes sure that at least `wanted` is left, renewing if needed, or fails.
    pub fn ensure(&self, wanted: Duration) -> Result<()> {
        self.keeper.block_on(self.inner.ensure(wanted))
    }

    /// Reports that the work goes on, for locks taken with `stall_after`.
    pub fn progress(&self) {
        self.inner.progress();
    }

    pub(super) fn when_lost(&self) -> impl Future<Output = LossCause> + Send + 'static {
        self.inner.lost()
    }

    /// Waits until the lock is lost, or released, and tells the cause.
    pub fn lost(&self) -> LossCause {
        self.keeper.block_on(self.inner.lost())
    }
}
