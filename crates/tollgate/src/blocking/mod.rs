//! The same locks for programs without an executor: every call waits on the thread it is made on.
//!
//! Names and meanings are those of the async side. Connections, timers and renewals live on the keeper's
//! thread, so that no runtime is needed and none is in the way: a call made inside one blocks its executor,
//! and nothing else.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # fn main() -> tollgate::Result<()> {
//! use std::time::Duration;
//!
//! let locks = tollgate::blocking::connect("memory:blocking")?;
//! let guard = locks.lock("orders/42").wait(Duration::from_secs(10)).acquire()?;
//! println!("write with token {}", guard.fence()?);
//! guard.release()?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```

mod guard;
mod locks;
mod modes;
mod request;
mod set;

pub use guard::{Guard, Lease};
pub use locks::{Each, Locks};
pub use modes::{RwLock, Semaphore};
pub use request::LockRequest;
pub use set::{Guards, SetRequest};
use tollgate_core::{Keeper, Result};

/// Connects to the engine that `url` names, as [`tollgate::connect`](crate::connect) does.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tollgate::Result<()> {
/// let locks = tollgate::blocking::connect("memory:")?;
/// assert!(locks.lock("free").try_acquire()?.is_some());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
pub fn connect(url: &str) -> Result<Locks> {
    let keeper = Keeper::global()?;
    let locks = keeper.block_on(crate::connect(url))?;
    Ok(Locks::new(locks, keeper))
}

/// Makes voters of new nodes, as [`tollgate::redlock_init`](crate::redlock_init) does.
///
/// ```no_run
/// # fn main() -> tollgate::Result<()> {
/// tollgate::blocking::redlock_init("redlock://a,b,c")?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "redis")]
pub fn redlock_init(url: &str) -> Result<crate::Initialized> {
    Keeper::global()?.block_on(crate::redlock_init(url))
}
