//! The locks people use today, each as its documentation says.
//!
//! Everybody opens its connections, and has said on them once what it will say, before the clock starts.

mod advisory;
mod etcd;
mod get_lock;
mod row;
mod rslock;
mod zookeeper;

use std::time::Duration;

pub(crate) use advisory::Advisory;
pub(crate) use etcd::EtcdLock;
pub(crate) use get_lock::GetLock;
pub(crate) use row::RowLock;
pub(crate) use rslock::Rslock;
pub(crate) use zookeeper::ZooKeeperLock;

/// How long a lock lives that nobody renews; Tollgate's default.
const TTL: Duration = Duration::from_secs(30);

/// A name that is locked once before the clock starts.
fn warm_up_name() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("warm-up/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
