//! What the suite does not try: servers that end and come back, lost connections, gates, and the
//! wire itself.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

mod gate;
mod places;
mod restarts;
mod servers;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BootClock, Clock, Keeper, LockName, Locks};
use tollgate_remote::{RemoteBackend, RemoteConfig};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(BootClock::new(Keeper::global().unwrap()))
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// A client of what listens at `address`.
pub(crate) async fn backend(address: impl std::fmt::Display) -> Arc<RemoteBackend> {
    let config = RemoteConfig::from_url(&format!("tollgate://{address}")).unwrap();
    Arc::new(RemoteBackend::connect(config, clock()).await.unwrap())
}

/// The same with everything around it.
pub(crate) async fn locks(address: impl std::fmt::Display) -> Locks {
    Locks::with_clock(backend(address).await, clock()).unwrap()
}

/// Waits until `condition` is true.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened that {what}");
}
