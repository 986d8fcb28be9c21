//! One passes at a time, and every passage is numbered.
//!
//! Tollgate takes named locks on the engine you already run, through one API, and every grant carries a
//! **fencing token** that a resource can check.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tollgate::Result<()> {
//! use std::time::Duration;
//!
//! let locks = tollgate::connect("memory:").await?;
//! let guard = locks.lock("orders/42").ttl(Duration::from_secs(30)).wait(Duration::from_secs(10)).acquire().await?;
//! println!("write with token {}", guard.fence()?);
//! guard.release().await?;
//!
//! // Cancelled when the lock is lost.
//! locks.lock("report").run(async |lease| println!("{:?}", lease.state())).await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```
//!
//! | URL | locks among | what ends a dead holder's lock |
//! | --- | --- | --- |
//! | `file:DIR` | the processes of one host | the end of the process |
//! | `memory:`, `memory:NAME` | the tasks of one process | its ttl |
//! | `redis://HOST` | every host that reaches it | its ttl |
//! | `etcd://HOST,HOST,HOST` | every host that reaches one of them that has a leader | its session's ttl |
//! | `zookeeper://HOST,HOST,HOST` | every host that reaches one of them that has a leader | its session's ttl |
//! | `postgres://HOST/DATABASE` | every host that reaches it | its ttl |
//! | `mysql://HOST/DATABASE`, `mariadb://…` | every host that reaches it | its ttl |
//! | `tollgate://HOST` | every host that reaches it | its ttl |
//! | `redlock://HOST,HOST,HOST` | every host that reaches a majority of them | its ttl |

pub mod blocking;
mod connect;
mod doctor;
mod engines;
#[cfg(feature = "etcd")]
pub mod etcd;
mod gate;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(feature = "server")]
mod server;
mod sql_schema;
mod url;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use connect::connect;
pub use doctor::doctor;
pub use gate::gate;
#[cfg(feature = "redis")]
pub use redlock::redlock_init;
pub use sql_schema::sql_schema;
pub use tollgate_core::{
    Age, Capabilities, Checkup, DEFAULT_TTL, Deadline, Details, Election, Error, ErrorKind, Event, Fault,
    Fence, Finding, Gate, Grant, Guarantee, Guarantees, Guard, GuardState, Guards, Happening, Holder,
    InvalidName, InvalidToken, Leader, Leadership, Lease, LockName, LockRequest, LockState, Locks, LossCause,
    Mark, MemoryGate, Mode, Moment, OnDeadlock, OwnerId, PartyHandle, Release, Result, Revocation,
    RevokeMode, RwLock, Semaphore, SetRequest, Severity, Stake, Stale, States, Token, Waiter, Work,
    parse_duration,
};

#[cfg(feature = "redis")]
pub use tollgate_redis::Initialized;

pub use tollgate_core::capabilities;
pub use tollgate_core::guarantees;
/// For the command line, which completes URLs.
#[doc(hidden)]
pub use tollgate_core::url::{decoded, encoded};

/// Compiles what README.md shows.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs what docs/concepts.md shows.
#[cfg(all(doctest, feature = "file", feature = "memory"))]
#[doc = include_str!("../../../docs/concepts.md")]
struct Concepts;

/// Compiles and runs what docs/backends/file.md shows.
#[cfg(all(doctest, feature = "file", feature = "memory"))]
#[doc = include_str!("../../../docs/backends/file.md")]
struct FilePage;

/// Compiles and runs what docs/backends/memory.md shows.
#[cfg(all(doctest, feature = "file", feature = "memory"))]
#[doc = include_str!("../../../docs/backends/memory.md")]
struct MemoryPage;

/// Compiles what docs/backends/etcd.md shows.
#[cfg(all(doctest, feature = "etcd"))]
#[doc = include_str!("../../../docs/backends/etcd.md")]
struct EtcdPage;

/// Compiles what docs/backends/server.md shows.
#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../../../docs/backends/server.md")]
struct ServerPage;

/// Compiles what docs/backends/zookeeper.md shows.
#[cfg(all(doctest, feature = "zookeeper"))]
#[doc = include_str!("../../../docs/backends/zookeeper.md")]
struct ZooKeeperPage;

/// Compiles what docs/backends/mysql.md shows.
#[cfg(all(doctest, feature = "mysql"))]
#[doc = include_str!("../../../docs/backends/mysql.md")]
struct MySqlPage;

/// Compiles what docs/backends/postgres.md shows.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/backends/postgres.md")]
struct PostgresPage;

/// Compiles what docs/backends/redis.md shows.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../../docs/backends/redis.md")]
struct RedisPage;

/// Compiles and runs what docs/watching.md shows.
#[cfg(all(doctest, feature = "file", feature = "memory"))]
#[doc = include_str!("../../../docs/watching.md")]
struct Watching;

/// Compiles and runs what docs/scripts.md shows.
#[cfg(all(doctest, feature = "file", feature = "memory"))]
#[doc = include_str!("../../../docs/scripts.md")]
struct Scripts;

/// Compiles and runs what docs/README.md shows.
#[cfg(all(doctest, feature = "file", feature = "memory"))]
#[doc = include_str!("../../../docs/README.md")]
struct Index;
