//! A semaphore: a name of which so many may hold a permit.

use crate::error::Result;
use crate::guard::Guard;
use crate::lock::LockRequest;

/// So many permits of one name. Everybody who uses it has to agree on how many there are: permits of different limits are
/// never in together.
///
/// Whoever holds a permit has a token, and [`fence`](crate::Lease::fence) refuses to give it out: several who are in
/// together are not one writer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-semaphore").await?;
/// let gpus = locks.semaphore("gpu", 2);
/// let one = gpus.acquire().await?;
/// let two = gpus.permit().meta("job", "render").acquire().await?;
/// assert!(gpus.try_acquire().await?.is_none(), "both are in use");
/// # drop((one, two));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    request: LockRequest,
}

impl Semaphore {
    pub(crate) fn new(request: LockRequest) -> Self {
        Self { request }
    }

    /// A request for one permit, to be configured: `.ttl(…)`, `.wait(…)` and the others of [`LockRequest`].
    pub fn permit(&self) -> LockRequest {
        self.request.clone()
    }

    /// Takes one permit, waiting for it without a limit.
    pub async fn acquire(&self) -> Result<Guard> {
        self.permit().acquire().await
    }

    /// Takes one permit if one is free; `None` if all are in use.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.permit().try_acquire().await
    }
}
