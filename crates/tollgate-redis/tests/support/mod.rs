//! What tests with servers of their own share.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod fenced;
pub(crate) mod places;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{BootClock, Claim, Keeper, LockName, Locks, Mode, Result};
use tollgate_redis::{RedisBackend, RedisConfig};

/// A backend on the Redis that `url` names.
pub(crate) async fn backend(url: &str) -> Result<RedisBackend> {
    backend_of(RedisConfig::from_url(url)?).await
}

pub(crate) async fn backend_of(config: RedisConfig) -> Result<RedisBackend> {
    RedisBackend::connect(config, Arc::new(BootClock::new(Keeper::global()?))).await
}

pub(crate) async fn locks(url: &str) -> Result<Locks> {
    Locks::new(Arc::new(backend(url).await?))
}

pub(crate) fn claim(name: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), Mode::Exclusive, Duration::from_secs(10))
}

/// What `redis-cli` prints.
pub(crate) fn cli(address: SocketAddr, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]).args(words);
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap().trim().to_owned()
}

/// How often a server has refused with `code`.
pub(crate) fn refusals(address: SocketAddr, code: &str) -> u64 {
    let stats = cli(address, &["INFO", "errorstats"]);
    let count = stats.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < end, "after 30 s still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
