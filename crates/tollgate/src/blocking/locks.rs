//! The handle to an engine.

use std::os::fd::OwnedFd;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::Fuse;
use tollgate_core::{
    BoxStream, Capabilities, Event, Grant, Guarantee, Keeper, LockState, Release, Result, Revocation, Token,
};

use super::{Guard, LockRequest, RwLock, Semaphore, SetRequest};

/// Locks on one engine; see [`tollgate::Locks`](crate::Locks). Cloning is cheap.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// let locks = tollgate::blocking::connect("memory:blocking-locks")?;
/// let guard = locks.lock("orders/42").acquire()?;
/// let state = locks.inspect("orders/42")?.expect("it is held");
/// assert_eq!(state.holders[0].token, Some(guard.token()));
/// assert_eq!(locks.list("orders/").count(), 1);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Locks {
    inner: crate::Locks,
    keeper: Keeper,
}

impl Locks {
    pub(super) fn new(inner: crate::Locks, keeper: Keeper) -> Self {
        Self { inner, keeper }
    }

    /// A request for the lock `name`.
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self.inner.lock(name), self.keeper.clone())
    }

    /// The lock `name`, to read or write under.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.inner.rw_lock(name), self.keeper.clone())
    }

    /// `limit` permits of `name`.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name, limit), self.keeper.clone())
    }

    /// A request for several locks, all or nothing.
    pub fn lock_all<I>(&self, names: I) -> SetRequest
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        SetRequest::new(self.inner.lock_all(names), self.keeper.clone())
    }

    /// Takes over a grant that [`Guard::into_grant`] gave away, perhaps in another process.
    pub fn adopt(&self, grant: Grant) -> Result<Guard> {
        let guard = self.keeper.block_on(self.inner.adopt(grant))?;
        Ok(Guard::new(guard, self.keeper.clone()))
    }

    /// Renews a grant that nobody keeps to `ttl` from now, and gives the grant as it is then.
    pub fn extend_grant(&self, grant: &Grant, ttl: Duration) -> Result<Grant> {
        self.keeper.block_on(self.inner.extend_grant(grant, ttl))
    }

    /// Gives back a grant that nobody keeps: `AlreadyLost` if it was lost before.
    pub fn release_grant(&self, grant: &Grant) -> Result<Release> {
        self.keeper.block_on(self.inner.release_grant(grant))
    }

    /// Makes a guard of a grant that another process [bequeathed](Guard::bequeath), and of the open file its
    /// lock hangs on.
    pub fn inherit(&self, grant: Grant, lock: OwnedFd) -> Result<Guard> {
        let guard = self.keeper.block_on(self.inner.inherit(grant, lock))?;
        Ok(Guard::new(guard, self.keeper.clone()))
    }

    /// What the backend can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    /// Fails with `Unsupported` unless the backend gives `guarantee`.
    pub fn require(&self, guarantee: Guarantee) -> Result<()> {
        self.inner.require(guarantee)
    }

    /// Holders and waiters of one lock; `None` when nobody holds it or waits.
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LockState>> {
        self.keeper.block_on(self.inner.inspect(name))
    }

    /// Every lock that is held or waited for and whose name starts with `prefix`.
    pub fn list(&self, prefix: &str) -> Each<'_, LockState> {
        Each::new(self.inner.list(prefix), &self.keeper)
    }

    /// What happens from now on to locks whose names start with `prefix`. Each step waits for the next event.
    pub fn events(&self, prefix: &str) -> Each<'_, Event> {
        Each::new(self.inner.events(prefix), &self.keeper)
    }

    /// Breaks the lock of the holder with `token`.
    pub fn revoke(&self, name: impl AsRef<str>, token: Token) -> Result<Revocation> {
        self.keeper.block_on(self.inner.revoke(name, token))
    }

    /// Takes the lock away from the holder with `token` and hands it on at once. The holder may still be at work.
    pub fn revoke_by_force(&self, name: impl AsRef<str>, token: Token) -> Result<Revocation> {
        self.keeper.block_on(self.inner.revoke_by_force(name, token))
    }

    /// Refuses new requests and waits for what is under way in the background; see
    /// [`tollgate::Locks::close`](crate::Locks::close).
    pub fn close(&self) {
        self.keeper.block_on(self.inner.close());
    }
}

/// What an engine tells one after the other. Each step waits for the next.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// let locks = tollgate::blocking::connect("memory:blocking-each")?;
/// let _guard = locks.lock("a").acquire()?;
/// for lock in locks.list("") {
///     println!("{:?}", lock?.name);
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
pub struct Each<'a, T> {
    /// May be asked again after its end, as any iterator.
    stream: Fuse<BoxStream<'a, Result<T>>>,
    keeper: &'a Keeper,
}

impl<'a, T> Each<'a, T> {
    fn new(stream: BoxStream<'a, Result<T>>, keeper: &'a Keeper) -> Self {
        Self { stream: stream.fuse(), keeper }
    }
}

impl<T> Iterator for Each<'_, T> {
    type Item = Result<T>;
    fn next(&mut self) -> Option<Result<T>> {
        self.keeper.block_on(self.stream.next())
    }
}

impl<T> std::fmt::Debug for Each<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Each").finish_non_exhaustive()
    }
}
