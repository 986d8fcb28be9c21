//! A read-write lock: a name whose claims are shared or exclusive.

use std::convert::Infallible;

use crate::error::{Error, ErrorKind, Result};
use crate::lease::Lease;
use crate::lock::LockRequest;

/// A lock that many may read under, or one may write under. It is the lock of its name in two modes: whoever takes that with
/// [`Locks::lock`](crate::Locks::lock) is one of its writers.
///
/// Readers and writers wait in one queue: a reader who comes after a waiting writer is let in after it, so that readers who
/// keep coming do not starve the writer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// use std::time::Duration;
///
/// let locks = tollgate::connect("memory:doc-rw-lock").await?;
/// let catalogue = locks.rw_lock("catalogue");
/// let one = catalogue.read().acquire().await?;
/// let two = catalogue.read().wait(Duration::from_secs(10)).acquire().await?;
/// assert!(catalogue.write().try_acquire().await?.is_none(), "it is being read");
/// # drop((one, two));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RwLock {
    request: LockRequest,
}

impl RwLock {
    pub(crate) fn new(request: LockRequest) -> Self {
        Self { request }
    }

    /// A request to read, together with everybody else who reads.
    pub fn read(&self) -> LockRequest {
        self.request.clone().shared()
    }

    /// A request to write, alone.
    pub fn write(&self) -> LockRequest {
        self.request.clone()
    }

    /// Refuses to make a writer of a reader, with the reason: two readers who both want to become the writer would wait for
    /// each other for ever. Release, take the write lock, and look again at what was read: somebody may have written in
    /// between.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// use tollgate::ErrorKind;
    ///
    /// let locks = tollgate::connect("memory:doc-upgrade").await?;
    /// let catalogue = locks.rw_lock("catalogue");
    /// let reader = catalogue.read().acquire().await?;
    /// let refused = catalogue.upgrade(&reader).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Unsupported);
    ///
    /// reader.release().await?;
    /// let writer = catalogue.write().acquire().await?;
    /// // Read again, then write.
    /// # drop(writer);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Always `Unsupported`. The reader keeps what it has.
    pub fn upgrade(&self, reader: &Lease) -> Result<Infallible> {
        let why = "a reader cannot become the writer: two readers that both try would wait for each other \
                   forever; release the read lock, take the write lock, and read again";
        Err(Error::new(ErrorKind::Unsupported, why).during("upgrade").on(reader.name()))
    }
}
