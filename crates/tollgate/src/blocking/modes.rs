//! Read-write locks and semaphores.

use std::convert::Infallible;

use tollgate_core::{Keeper, Result};

use super::{Guard, Lease, LockRequest};

/// A lock that many may read under, or one may write under; see [`tollgate::RwLock`](crate::RwLock).
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// let locks = tollgate::blocking::connect("memory:blocking-rw-lock")?;
/// let catalogue = locks.rw_lock("catalogue");
/// let reader = catalogue.read().acquire()?;
/// assert!(catalogue.write().try_acquire()?.is_none(), "it is being read");
/// assert!(catalogue.upgrade(&reader).is_err(), "release it, and take the write lock");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct RwLock {
    inner: crate::RwLock,
    keeper: Keeper,
}

impl RwLock {
    pub(super) fn new(inner: crate::RwLock, keeper: Keeper) -> Self {
        Self { inner, keeper }
    }

    /// A request to read, together with everybody else who reads.
    pub fn read(&self) -> LockRequest {
        LockRequest::new(self.inner.read(), self.keeper.clone())
    }

    /// A request to write, alone.
    pub fn write(&self) -> LockRequest {
        LockRequest::new(self.inner.write(), self.keeper.clone())
    }

    /// Refuses to make a writer of a reader, with the reason.
    ///
    /// # Errors
    /// Always `Unsupported`. The reader keeps what it has.
    pub fn upgrade(&self, reader: &Lease) -> Result<Infallible> {
        self.inner.upgrade(&reader.inner)
    }
}

/// So many permits of one name; see [`tollgate::Semaphore`](crate::Semaphore).
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// let locks = tollgate::blocking::connect("memory:blocking-semaphore")?;
/// let gpus = locks.semaphore("gpu", 1);
/// let one = gpus.acquire()?;
/// assert!(gpus.try_acquire()?.is_none(), "it is in use");
/// # drop(one);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    inner: crate::Semaphore,
    keeper: Keeper,
}

impl Semaphore {
    pub(super) fn new(inner: crate::Semaphore, keeper: Keeper) -> Self {
        Self { inner, keeper }
    }

    /// A request for one permit, to be configured.
    pub fn permit(&self) -> LockRequest {
        LockRequest::new(self.inner.permit(), self.keeper.clone())
    }

    /// Takes one permit, waiting for it without a limit.
    pub fn acquire(&self) -> Result<Guard> {
        self.permit().acquire()
    }

    /// Takes one permit if one is free; `None` if all are in use.
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        self.permit().try_acquire()
    }
}
