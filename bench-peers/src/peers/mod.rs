//! The locks people use today, each as its documentation says.
//!
//! Everybody opens its connections, and has said on them once what it will say, before the clock starts.

mod advisory;
mod etcd;
mod get_lock;
mod maria;
mod maria_row;
mod plain_advisory;
mod row;
mod rslock;
mod zookeeper;

use std::time::Duration;

pub(crate) use advisory::Advisory;
pub(crate) use etcd::EtcdLock;
pub(crate) use get_lock::GetLock;
pub(crate) use maria_row::MariaRowLock;
pub(crate) use plain_advisory::PlainAdvisory;
pub(crate) use row::RowLock;
pub(crate) use rslock::Rslock;
pub(crate) use zookeeper::ZooKeeperLock;

/// How long a lock lives that nobody renews; Tollgate's default.
const TTL: Duration = Duration::from_secs(30);

/// How long who polls waits before it tries again.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// A name that is locked once before the clock starts.
fn warm_up_name() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("warm-up/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A number that no other acquisition has.
fn owner() -> i64 {
    use std::sync::atomic::{AtomicI64, Ordering};
    static NEXT: AtomicI64 = AtomicI64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
