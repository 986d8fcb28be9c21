//! Several locks at once.

use std::time::Duration;

use futures_util::future::select_all;
use tollgate_core::{Keeper, LockName, LossCause, OnDeadlock, PartyHandle, Release, Result};

use super::Guard;

/// A request for several locks, all or nothing; see [`tollgate::SetRequest`](crate::SetRequest).
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// let locks = tollgate::blocking::connect("memory:blocking-set")?;
/// let both = locks.lock_all(["inventory/9", "payment/7"]).acquire()?;
/// assert!(locks.lock("payment/7").try_acquire()?.is_none());
/// both.release()?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[must_use = "a request does nothing until it is acquired"]
#[derive(Debug, Clone)]
pub struct SetRequest {
    inner: crate::SetRequest,
    keeper: Keeper,
}

impl SetRequest {
    pub(super) fn new(inner: crate::SetRequest, keeper: Keeper) -> Self {
        Self { inner, keeper }
    }

    fn with(self, change: impl FnOnce(crate::SetRequest) -> crate::SetRequest) -> Self {
        Self { inner: change(self.inner), keeper: self.keeper }
    }

    /// Shares every one of them with other shared holders.
    pub fn shared(self) -> Self {
        self.with(crate::SetRequest::shared)
    }

    /// Takes one of `limit` permits of every one of them.
    pub fn permit(self, limit: u32) -> Self {
        self.with(|request| request.permit(limit))
    }

    /// How long each lives without renewal; 30 s unless said.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|request| request.ttl(ttl))
    }

    /// Adds something that people see who look at one of the locks.
    pub fn meta(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|request| request.meta(key, value))
    }

    /// Gives the set up after it was held for `most`, whatever the work does.
    pub fn max_hold(self, most: Duration) -> Self {
        self.with(|request| request.max_hold(most))
    }

    /// Gives each up when nobody called its [`progress`](super::Lease::progress) for this long.
    pub fn stall_after(self, silence: Duration) -> Self {
        self.with(|request| request.stall_after(silence))
    }

    /// Has nobody renew them: they end with their ttl.
    pub fn no_renew(self) -> Self {
        self.with(crate::SetRequest::no_renew)
    }

    /// Keeps each name closed for `delay` if its holder is lost rather than released.
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.with(|request| request.lock_delay(delay))
    }

    /// Says which task or transaction the set belongs to.
    pub fn party(self, party: &PartyHandle) -> Self {
        self.with(|request| request.party(party))
    }

    /// What becomes of a claim whose waiting might never end.
    pub fn on_deadlock(self, policy: OnDeadlock) -> Self {
        self.with(|request| request.on_deadlock(policy))
    }

    /// Waits at most this long for all of them together.
    pub fn wait(self, most: Duration) -> Self {
        self.with(|request| request.wait(most))
    }

    /// Takes all of them, waiting as long as [`wait`](Self::wait) says. Fails with `Busy` if that was
    /// not enough, and holds none of them then.
    pub fn acquire(self) -> Result<Guards> {
        let guards = self.keeper.block_on(self.inner.acquire())?;
        Ok(Guards::new(guards, self.keeper))
    }

    /// Takes all of them if they are free, or come free within [`wait`](Self::wait); `None` if one is busy.
    pub fn try_acquire(self) -> Result<Option<Guards>> {
        let guards = self.keeper.block_on(self.inner.try_acquire())?;
        Ok(guards.map(|guards| Guards::new(guards, self.keeper)))
    }
}

/// Several held locks, sorted by name. Dropping them releases all in the background.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// let locks = tollgate::blocking::connect("memory:blocking-guards")?;
/// let both = locks.lock_all(["b", "a"]).acquire()?;
/// assert_eq!(both.iter().map(|guard| guard.name().as_str()).collect::<Vec<_>>(), ["a", "b"]);
/// both.check()?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[must_use = "dropping guards releases the locks"]
#[derive(Debug)]
pub struct Guards {
    /// Sorted by name.
    guards: Vec<Guard>,
    keeper: Keeper,
}

impl Guards {
    fn new(guards: crate::Guards, keeper: Keeper) -> Self {
        let guards = guards.into_iter().map(|guard| Guard::new(guard, keeper.clone())).collect();
        Self { guards, keeper }
    }

    /// The guard of one of them.
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.guards.len()
    }

    /// Whether there are none, which a set never has.
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Fails with `Lost` unless every one of them is held.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(|guard| guard.check())
    }

    /// Makes sure that at least `wanted` is left of every one of them, renewing if needed, or fails.
    pub fn ensure(&self, wanted: Duration) -> Result<()> {
        self.guards.iter().try_for_each(|guard| guard.ensure(wanted))
    }

    /// Waits until the first of them is lost, and tells which and why.
    pub fn lost(&self) -> (LockName, LossCause) {
        let each = self.guards.iter().map(|guard| {
            let lost = guard.when_lost();
            Box::pin(async move { (guard.name().clone(), lost.await) })
        });
        self.keeper.block_on(select_all(each)).0
    }

    /// Gives all of them back: `AlreadyLost` if one of them was. The first error is told; the rest are
    /// released all the same.
    pub fn release(self) -> Result<Release> {
        let mut outcome = Ok(Release::Released);
        for guard in self.guards.into_iter().rev() {
            match (guard.release(), &outcome) {
                (Err(error), Ok(_)) => outcome = Err(error),
                (Ok(Release::AlreadyLost), Ok(_)) => outcome = Ok(Release::AlreadyLost),
                _ => {}
            }
        }
        outcome
    }
}

impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;
    fn into_iter(self) -> Self::IntoIter {
        self.guards.into_iter()
    }
}
