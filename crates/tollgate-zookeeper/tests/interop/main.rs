//! Others' locks and ours on one name: Curator's mutex and read-write lock, and kazoo's, in processes of their own.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use support::java::java;
use support::{TICK, backend_of, config, hosts, secs};
use tollgate_core::{Locks, Release};
use tollgate_testkit::engines::{self, Engine};
use tollgate_testkit::foreign::{Foreigner, Ground, it_waits_for_ours, ours_waits_for, passes};
use tollgate_zookeeper::{Style, ZooKeeperConfig};

/// How many of each kind come, and how often each.
const OF_EACH: usize = 3;
const TIMES: usize = 12;

/// Where the folder of the lock `a/b` is.
const PATH: &str = "/locks/a/b";

fn one() -> Engine {
    engines::private(&config(1)).unwrap()
}

async fn locks(engine: &Engine, style: Style) -> Locks {
    let mut config = ZooKeeperConfig::from_url(&format!("zookeeper://{}/", hosts(engine))).unwrap();
    (config.tick, config.style) = (TICK, style);
    Locks::new(Arc::new(backend_of(config).await.unwrap())).unwrap()
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop").join(file)
}

/// Curator as Debian has it.
fn curator(engine: &Engine, kind: &str) -> Command {
    let jars = [
        "curator-recipes",
        "curator-framework",
        "curator-client",
        "zookeeper",
        "zookeeper-jute",
        "guava",
        "slf4j-api",
        "slf4j-simple",
    ];
    let mut command = java("interop/Curator.java", &jars);
    command.args([&hosts(engine), PATH, kind]);
    command
}

/// kazoo as Debian has it, with the Python that it is for.
fn kazoo(engine: &Engine, kind: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(here("kazoo_locks.py")).args([&hosts(engine), PATH, kind]);
    command
}

fn holding(mut command: Command, file: &Path) -> Command {
    command.arg("hold").arg(file);
    command
}

/// Everybody at once, with the lock or without.
async fn crowd(engine: &Engine, style: Style, foreign: &[&dyn Fn() -> Command], locked: bool) -> usize {
    let ground = Ground::default();
    let mut others = Vec::new();
    for _ in 0..OF_EACH {
        for foreign in foreign {
            let (mut command, mut times) = (Command::new("env"), TIMES);
            if locked {
                (command, times) = (foreign(), 1);
                command.arg(TIMES.to_string());
            }
            command.args(ground.command());
            others.push(tokio::spawn(passes(command, times)));
        }
    }
    let clients = [locks(engine, style).await, locks(engine, style).await];
    let ours = (0..OF_EACH).map(|n| ground.pass_by(locked.then_some(&clients[n % 2]), "a/b", n, TIMES));
    futures_util::future::join_all(ours).await;
    for other in others {
        other.await.unwrap();
    }
    ground.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curators_mutex_and_ours_wait_for_each_other() {
    let engine = one();
    let locks = locks(&engine, Style::Curator).await;
    let command = |file: &Path| holding(curator(&engine, "mutex"), file);
    ours_waits_for(&locks, "a/b", command).await;
    it_waits_for_ours(&locks, "a/b", |request| request, command).await;
    it_waits_for_ours(&locks, "a/b", |request| request.shared(), command).await;
    it_waits_for_ours(&locks, "a/b", |request| request.permit(2), command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curators_read_write_lock_and_ours_wait_for_each_other() {
    let engine = one();
    let locks = locks(&engine, Style::CuratorReadWrite).await;
    let writes = |file: &Path| holding(curator(&engine, "write"), file);
    ours_waits_for(&locks, "a/b", writes).await;
    it_waits_for_ours(&locks, "a/b", |request| request, writes).await;
    it_waits_for_ours(&locks, "a/b", |request| request.shared(), writes).await;
    it_waits_for_ours(&locks, "a/b", |request| request.permit(2), writes).await;
    let reads = |file: &Path| holding(curator(&engine, "read"), file);
    it_waits_for_ours(&locks, "a/b", |request| request, reads).await;
    it_waits_for_ours(&locks, "a/b", |request| request.permit(2), reads).await;
    readers_are_in_together(&locks, reads).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoos_locks_and_ours_wait_for_each_other() {
    let engine = one();
    let locks = locks(&engine, Style::Kazoo).await;
    for kind in ["Lock", "WriteLock"] {
        let command = |file: &Path| holding(kazoo(&engine, kind), file);
        ours_waits_for(&locks, "a/b", command).await;
        it_waits_for_ours(&locks, "a/b", |request| request, command).await;
        it_waits_for_ours(&locks, "a/b", |request| request.permit(2), command).await;
    }
    let writes = |file: &Path| holding(kazoo(&engine, "WriteLock"), file);
    it_waits_for_ours(&locks, "a/b", |request| request.shared(), writes).await;
    let reads = |file: &Path| holding(kazoo(&engine, "ReadLock"), file);
    it_waits_for_ours(&locks, "a/b", |request| request, reads).await;
    it_waits_for_ours(&locks, "a/b", |request| request.permit(2), reads).await;
    readers_are_in_together(&locks, reads).await;
}

/// A foreign reader and ours share; our writer waits for both.
async fn readers_are_in_together(locks: &Locks, reads: impl Fn(&Path) -> Command) {
    let mut reader = Foreigner::start(reads);
    reader.is_in().await;
    let ours = locks.lock("a/b").ttl(secs(60)).shared().try_acquire().await.unwrap().expect("readers share");
    assert!(locks.lock("a/b").ttl(secs(60)).try_acquire().await.unwrap().is_none(), "a writer came in");
    assert_eq!(ours.release().await.unwrap(), Release::Released);
    let writer = tokio::spawn(locks.lock("a/b").ttl(secs(60)).acquire());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!writer.is_finished(), "a writer came in");
    reader.leave();
    let writer = support::soon("the writer is in", writer).await.unwrap().unwrap();
    assert_eq!(writer.release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_passes_beside_curators_mutex() {
    let engine = one();
    let mutex = || curator(&engine, "mutex");
    assert_eq!(crowd(&engine, Style::Curator, &[&mutex], true).await, 2 * OF_EACH * TIMES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_passes_beside_curators_writers() {
    let engine = one();
    let writes = || curator(&engine, "write");
    assert_eq!(crowd(&engine, Style::CuratorReadWrite, &[&writes], true).await, 2 * OF_EACH * TIMES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_passes_beside_kazoos_locks() {
    let engine = one();
    let (plain, writes) = (|| kazoo(&engine, "Lock"), || kazoo(&engine, "WriteLock"));
    assert_eq!(crowd(&engine, Style::Kazoo, &[&plain, &writes], true).await, 3 * OF_EACH * TIMES);
}

/// The judge can fail: without the lock they meet, and counts are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_they_lose_counts() {
    let engine = one();
    let nobody = || Command::new("env");
    assert!(crowd(&engine, Style::Curator, &[&nobody], false).await < 2 * OF_EACH * TIMES, "nobody met");
}
