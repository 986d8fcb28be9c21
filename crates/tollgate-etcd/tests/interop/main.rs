//! Others' locks and ours on one name: `etcdctl lock` and clients of the v3lock service, in processes of their own, judged by
//! a number in a file to which everybody adds one.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use support::{ctl, etcdctl, locks, url};
use tollgate_testkit::engines::{self, Config, Engine};
use tollgate_testkit::foreign::{Ground, it_waits_for_ours, ours_waits_for, passes};

/// How many of each kind come, and how often each.
const OF_EACH: usize = 3;
const TIMES: usize = 12;

fn v3lock(address: SocketAddr, lock: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/v3lock.py");
    let mut command = Command::new("python3");
    command.arg(script).args([&address.to_string(), lock]);
    command
}

/// Everybody at once, with the lock or without.
async fn crowd(engine: &Engine, locked: bool) -> usize {
    let (address, ground) = (engine.address(), Ground::default());
    let mut others = Vec::new();
    for _ in 0..OF_EACH {
        let mut by_etcdctl = if locked { etcdctl(address) } else { Command::new("env") };
        if locked {
            by_etcdctl.args(["lock", "/locks/crowd"]);
        }
        by_etcdctl.args(ground.command());
        others.push(tokio::spawn(passes(by_etcdctl, TIMES)));
        if locked {
            let mut by_v3lock = v3lock(address, "/locks/crowd");
            by_v3lock.arg(TIMES.to_string()).args(ground.command());
            others.push(tokio::spawn(passes(by_v3lock, 1)));
        } else {
            let mut command = Command::new("env");
            command.args(ground.command());
            others.push(tokio::spawn(passes(command, TIMES)));
        }
    }
    let clients = [locks(&url(engine)).await.unwrap(), locks(&url(engine)).await.unwrap()];
    let ours = (0..OF_EACH).map(|n| ground.pass_by(locked.then_some(&clients[n % 2]), "crowd", n, TIMES));
    futures_util::future::join_all(ours).await;
    for other in others {
        other.await.unwrap();
    }
    ground.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_passes_whoever_it_is() {
    let engine = engines::private(&Config::etcd()).unwrap();
    assert_eq!(crowd(&engine, true).await, 3 * OF_EACH * TIMES);
}

async fn wait_for_each_other(engine: &Engine, name: &str, command: impl Fn(&Path) -> Command) {
    let locks = locks(&url(engine)).await.unwrap();
    ours_waits_for(&locks, name, &command).await;
    it_waits_for_ours(&locks, name, |request| request, &command).await;
    it_waits_for_ours(&locks, name, |request| request.shared(), &command).await;
    it_waits_for_ours(&locks, name, |request| request.permit(2), &command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_and_ours_wait_for_each_other() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let address = engine.address();
    let command = |file: &Path| {
        let mut command = etcdctl(address);
        let script = format!("echo granted; while [ -e {} ]; do sleep 0.02; done", file.display());
        command.args(["lock", "/locks/a/b", "--", "sh", "-c", &script]);
        command
    };
    wait_for_each_other(&engine, "a/b", command).await;
    assert_eq!(ctl(address, &["get", "--prefix", "/locks/"]), "", "nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v3lock_and_ours_wait_for_each_other() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let address = engine.address();
    let command = |file: &Path| {
        let mut command = v3lock(address, "/locks/v3");
        command.arg("hold").arg(file);
        command
    };
    wait_for_each_other(&engine, "v3", command).await;
    assert_eq!(ctl(address, &["get", "--prefix", "/locks/"]), "", "nothing is left");
}

/// The judge can fail: without the lock they meet, and counts are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_they_lose_counts() {
    let engine = engines::private(&Config::etcd()).unwrap();
    assert!(crowd(&engine, false).await < 3 * OF_EACH * TIMES, "nobody met");
}
