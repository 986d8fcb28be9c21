//! A request for one lock.

use std::time::Duration;

use tollgate_core::{Error, Keeper, OnDeadlock, PartyHandle, Result};

use super::{Guard, Lease};

/// A request for a lock, to be configured and then acquired; see
/// [`tollgate::LockRequest`](crate::LockRequest).
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// use std::time::Duration;
///
/// let locks = tollgate::blocking::connect("memory:blocking-request")?;
/// let rows = locks.lock("report").ttl(Duration::from_secs(30)).meta("job", "nightly").run(|lease| {
///     lease.progress();
///     17
/// })?;
/// assert_eq!(rows, 17);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[must_use = "a request does nothing until it is acquired"]
#[derive(Debug, Clone)]
pub struct LockRequest {
    inner: crate::LockRequest,
    keeper: Keeper,
}

impl LockRequest {
    pub(super) fn new(inner: crate::LockRequest, keeper: Keeper) -> Self {
        Self { inner, keeper }
    }

    fn with(self, change: impl FnOnce(crate::LockRequest) -> crate::LockRequest) -> Self {
        Self { inner: change(self.inner), keeper: self.keeper }
    }

    /// Shares the lock with every other shared holder.
    pub fn shared(self) -> Self {
        self.with(crate::LockRequest::shared)
    }

    /// Takes one of `limit` permits.
    pub fn permit(self, limit: u32) -> Self {
        self.with(|request| request.permit(limit))
    }

    /// How long the lock lives without renewal; 30 s unless said.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|request| request.ttl(ttl))
    }

    /// Waits at most this long. Without it [`acquire`](Self::acquire) waits for ever and
    /// [`try_acquire`](Self::try_acquire) not at all.
    pub fn wait(self, most: Duration) -> Self {
        self.with(|request| request.wait(most))
    }

    /// Gives the lock up after it was held for `most`, whatever the work does.
    pub fn max_hold(self, most: Duration) -> Self {
        self.with(|request| request.max_hold(most))
    }

    /// Gives the lock up when nobody called [`progress`](Lease::progress) for this long.
    pub fn stall_after(self, silence: Duration) -> Self {
        self.with(|request| request.stall_after(silence))
    }

    /// Has nobody renew the lock: it ends with its ttl.
    pub fn no_renew(self) -> Self {
        self.with(crate::LockRequest::no_renew)
    }

    /// Keeps the name closed for `delay` if this holder is lost rather than released.
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.with(|request| request.lock_delay(delay))
    }

    /// Adds something that people see who look at the lock.
    pub fn meta(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|request| request.meta(key, value))
    }

    /// Says which task or transaction this claim belongs to.
    pub fn party(self, party: &PartyHandle) -> Self {
        self.with(|request| request.party(party))
    }

    /// What becomes of a claim whose waiting might never end.
    pub fn on_deadlock(self, policy: OnDeadlock) -> Self {
        self.with(|request| request.on_deadlock(policy))
    }

    /// Takes the lock, waiting for it as long as [`wait`](Self::wait) says. Fails with `Busy` if that
    /// was not enough.
    pub fn acquire(self) -> Result<Guard> {
        let guard = self.keeper.block_on(self.inner.acquire())?;
        Ok(Guard::new(guard, self.keeper))
    }

    /// Takes the lock if it is free, or comes free within [`wait`](Self::wait); `None` if it is busy.
    pub fn try_acquire(self) -> Result<Option<Guard>> {
        let guard = self.keeper.block_on(self.inner.try_acquire())?;
        Ok(guard.map(|guard| Guard::new(guard, self.keeper)))
    }

    /// Takes the lock, runs `work`, and releases it.
    ///
    /// A thread cannot be cancelled: `work` has to look at its lease now and then, with
    /// [`check`](Lease::check) or [`fence`](Lease::fence). Fails with `Lost` if the lock did not last until
    /// `work` came to its end.
    pub fn run<T>(self, work: impl FnOnce(Lease) -> T) -> Result<T> {
        let guard = self.acquire()?;
        let value = work(guard.lease());
        guard.finish().map_err(|error| error.during("run"))?;
        Ok(value)
    }

    /// Takes the lock, runs `work` that can fail, and releases it: the error is that of `work`, or of the lock. Otherwise as
    /// [`run`](Self::run).
    pub fn try_run<T, E: From<Error>>(self, work: impl FnOnce(Lease) -> Result<T, E>) -> Result<T, E> {
        let guard = self.acquire()?;
        let outcome = work(guard.lease());
        let finished = guard.finish();
        let value = outcome?;
        finished.map_err(|error| error.during("run"))?;
        Ok(value)
    }
}
