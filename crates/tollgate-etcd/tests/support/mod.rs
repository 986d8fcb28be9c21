//! What tests with an etcd of their own share.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod late;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{BootClock, Claim, Keeper, LockName, Locks, Mode, Result};
use tollgate_etcd::{EtcdBackend, EtcdConfig};
use tollgate_testkit::engines::{Engine, Node};

/// A backend on the etcd that `url` names.
pub(crate) async fn backend(url: &str) -> Result<EtcdBackend> {
    backend_of(EtcdConfig::from_url(url)?).await
}

pub(crate) async fn backend_of(config: EtcdConfig) -> Result<EtcdBackend> {
    EtcdBackend::connect(config, Arc::new(BootClock::new(Keeper::global()?))).await
}

pub(crate) async fn locks(url: &str) -> Result<Locks> {
    Locks::new(Arc::new(backend(url).await?))
}

pub(crate) fn claim(name: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), Mode::Exclusive, Duration::from_secs(10))
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A URL of all nodes.
pub(crate) fn url(engine: &Engine) -> String {
    let hosts: Vec<_> = engine.nodes().iter().map(|node| node.address().to_string()).collect();
    format!("etcd://{}/", hosts.join(","))
}

/// What `etcdctl` prints.
pub(crate) fn ctl(address: SocketAddr, words: &[&str]) -> String {
    let Output { stdout, stderr, status } = etcdctl(address).args(words).output().unwrap();
    assert!(status.success(), "etcdctl {words:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().trim().to_owned()
}

pub(crate) fn etcdctl(address: SocketAddr) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints={address}"));
    command
}

/// The node that leads, as it says itself.
pub(crate) fn leader(engine: &Engine) -> Option<&Node> {
    engine.nodes().iter().find(|node| {
        let asked = etcdctl(node.address()).args(["--command-timeout=1s", "endpoint", "status"]).output();
        // endpoint, id, version, size, is leader, …
        asked.is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout).split(", ").nth(4).is_some_and(|leads| leads == "true")
        })
    })
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + secs(30);
    while !condition().await {
        assert!(Instant::now() < end, "after 30 s still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for `future` as long as anything may take that should happen soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(20), future).await.unwrap_or_else(|_| panic!("it never happened that {what}"))
}

/// Has etcd execute `puts`, a line each, in one transaction.
pub(crate) fn transact(address: SocketAddr, puts: &str) {
    use std::io::Write;
    use std::process::Stdio;

    let mut child = etcdctl(address).arg("txn").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Nothing is compared, and nothing is done if that fails.
    child.stdin.take().unwrap().write_all(format!("\n{puts}\n\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
