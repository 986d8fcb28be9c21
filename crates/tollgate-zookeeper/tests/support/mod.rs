//! What tests with a ZooKeeper of their own share.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod java;
pub(crate) mod wire;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{BootClock, Claim, Keeper, LockName, Locks, Mode, Result};
use tollgate_testkit::engines::{self, Config, Engine, Node};
use tollgate_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};

/// The tick of the engines here.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// The shortest ttl with it, and some room.
pub(crate) const TTL: Duration = Duration::from_millis(2000);

/// A ZooKeeper of so many servers, with sessions as long as anybody wants.
pub(crate) fn config(nodes: usize) -> Config {
    Config::zookeeper().nodes(nodes).argument("maxSessionTimeout=3600000")
}

/// One server.
pub(crate) fn one() -> Engine {
    engines::private(&config(1)).unwrap()
}

/// An ensemble of three.
pub(crate) fn three() -> Engine {
    engines::private(&config(3)).unwrap()
}

/// A backend on the ZooKeeper at `hosts`.
pub(crate) async fn backend(hosts: &str) -> Result<ZooKeeperBackend> {
    let mut config = ZooKeeperConfig::from_url(&format!("zookeeper://{hosts}/"))?;
    config.tick = TICK;
    backend_of(config).await
}

pub(crate) async fn backend_of(config: ZooKeeperConfig) -> Result<ZooKeeperBackend> {
    ZooKeeperBackend::connect(config, Arc::new(BootClock::new(Keeper::global()?))).await
}

pub(crate) async fn locks(hosts: &str) -> Result<Locks> {
    Locks::new(Arc::new(backend(hosts).await?))
}

/// The locks of an engine's, with what is before and after the servers in the URL.
pub(crate) fn configured(engine: &Engine, start: &str, end: &str) -> ZooKeeperConfig {
    let mut config =
        ZooKeeperConfig::from_url(&format!("zookeeper://{start}{}{end}", hosts(engine))).unwrap();
    config.tick = TICK;
    config
}

pub(crate) fn claim(name: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), Mode::Exclusive, Duration::from_secs(10))
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// All servers.
pub(crate) fn hosts(engine: &Engine) -> String {
    engine.nodes().iter().map(|node| node.address().to_string()).collect::<Vec<_>>().join(",")
}

/// What a server says when it is asked by four letters.
pub(crate) fn said(address: SocketAddr, word: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = stream.write_all(word.as_bytes());
        let _ = stream.read_to_string(&mut text);
    }
    text
}

/// The server that leads, as it says itself.
pub(crate) fn leader(engine: &Engine) -> Option<&Node> {
    engine.nodes().iter().find(|node| said(node.address(), "srvr").contains("Mode: leader"))
}

/// The configuration file of a server.
pub(crate) fn zoo_cfg(engine: &Engine, node: &Node) -> PathBuf {
    let port = format!("clientPort={}\n", node.address().port());
    let mut folders = vec![engine.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("zoo.cfg") && std::fs::read_to_string(&path).unwrap().contains(&port) {
                return path;
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    panic!("{} has no configuration", node.address())
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + secs(60);
    while !condition().await {
        assert!(Instant::now() < end, "after 60 s still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for `future` as long as anything may take that should happen soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(20), future).await.unwrap_or_else(|_| panic!("it never happened that {what}"))
}
