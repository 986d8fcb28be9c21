//! Users of a fence: their connections, and holders that have left.

use std::net::SocketAddr;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tollgate_core::{Fence, Locks};
use tollgate_testkit::engines::{self, Config};

use super::locks;

/// The Redis that tests share.
pub(crate) fn shared() -> SocketAddr {
    engines::shared(&Config::redis()).address()
}

/// A user's own connection, with more patience than the driver has by itself: machines that test are busy.
pub(crate) async fn connection(address: SocketAddr) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://{address}/")).unwrap();
    let patience = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new().set_response_timeout(patience).set_connection_timeout(patience);
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Locks on it, and a connection to it.
pub(crate) async fn on_shared() -> (Locks, MultiplexedConnection) {
    (locks(&format!("redis://{}/", shared())).await.unwrap(), connection(shared()).await)
}

/// The proof of a holder that has left meanwhile; a later one's is larger.
pub(crate) async fn writer(locks: &Locks, name: &str) -> Fence {
    let guard = locks.lock(name).acquire().await.unwrap();
    let fence = guard.fence().unwrap();
    guard.release().await.unwrap();
    fence
}
