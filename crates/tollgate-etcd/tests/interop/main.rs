//! Others' locks and ours on one name: `etcdctl lock` and clients of the v3lock service, in processes of their own, judged by
//! a number in a file to which everybody adds one.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::{ctl, etcdctl, locks, secs, soon, until, url};
use tollgate_core::{Locks, Release};
use tollgate_testkit::engines::{self, Config, Engine};

/// How many of each kind come, and how often each.
const OF_EACH: usize = 3;
const TIMES: usize = 12;

/// A number in a file. To add one is to read, to pause, and to write: two at it at once lose a count.
struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("counter"), "0").unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("counter")
    }

    fn count(&self) -> usize {
        std::fs::read_to_string(self.file()).unwrap().trim().parse().unwrap()
    }

    /// The passage as a command. The number is replaced, so that nobody finds half of it.
    fn command(&self) -> [String; 2] {
        let (file, script) = (self.file(), self.0.path().join("pass.sh"));
        let file = file.display();
        let text = format!("n=$(cat {file}); sleep 0.01; echo $((n + 1)) > {file}.$$; mv {file}.$$ {file}");
        std::fs::write(&script, text).unwrap();
        ["sh".to_owned(), script.display().to_string()]
    }

    /// The passage in this process.
    async fn pass(&self, who: usize) {
        let seen = self.count();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let new = self.0.path().join(format!("ours-{who}"));
        std::fs::write(&new, (seen + 1).to_string()).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }
}

/// A foreign client that holds a lock as long as a file is there. Killed when dropped.
struct Foreigner {
    child: Child,
    folder: tempfile::TempDir,
}

impl Foreigner {
    fn start(command: impl Fn(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("held");
        std::fs::write(&file, "").unwrap();
        Self { child: command(&file).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap(), folder }
    }

    /// Has it give the lock back.
    fn leave(&self) {
        std::fs::remove_file(self.folder.path().join("held")).unwrap();
    }
}

impl Drop for Foreigner {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn v3lock(address: SocketAddr, lock: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/v3lock.py");
    let mut command = Command::new("python3");
    command.arg(script).args([&address.to_string(), lock]);
    command
}

/// One that passes so many times; `etcdctl lock` is started for each.
async fn passes(mut command: Command, times: usize) {
    let run = move || (0..times).all(|_| command.stdout(Stdio::null()).status().unwrap().success());
    assert!(tokio::task::spawn_blocking(run).await.unwrap(), "a foreign client failed");
}

async fn ours_pass(locks: &Locks, ground: &Ground, who: usize) {
    for _ in 0..TIMES {
        let guard = locks.lock("crowd").ttl(secs(60)).acquire().await.unwrap();
        ground.pass(who).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// Everybody at once, with the lock or without.
async fn crowd(engine: &Engine, locked: bool) -> usize {
    let (address, ground) = (engine.address(), Ground::new());
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
    let ours = (0..OF_EACH).map(async |n| {
        if locked {
            ours_pass(&clients[n % 2], &ground, n).await;
        } else {
            for _ in 0..TIMES {
                ground.pass(n).await;
            }
        }
    });
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

/// A lock that is held by another kind of client: ours is busy, waits, and gets it when that one leaves.
async fn ours_waits_for(engine: &Engine, name: &str, command: impl Fn(&Path) -> Command) {
    let locks = locks(&url(engine)).await.unwrap();
    let mut child = Foreigner::start(command);
    let mut said = String::new();
    BufReader::new(child.child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(!said.is_empty(), "it says that it holds the lock");
    for request in [locks.lock(name), locks.lock(name).shared(), locks.lock(name).permit(5)] {
        assert!(request.ttl(secs(60)).try_acquire().await.unwrap().is_none(), "ours came in beside it");
    }
    let seen = locks.inspect(name).await.unwrap().unwrap();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0));
    assert!(seen.holders[0].token.is_some(), "its revision is as good a token as ours");
    let waiting = tokio::spawn(locks.lock(name).ttl(secs(60)).acquire());
    until("ours waits", async || locks.inspect(name).await.unwrap().unwrap().waiters.len() == 1).await;
    assert!(!waiting.is_finished());
    child.leave();
    let guard = soon("ours is in", waiting).await.unwrap().unwrap();
    assert!(Some(guard.token()) > seen.holders[0].token);
    guard.release().await.unwrap();
}

/// A lock that we hold, in every mode: another kind of client waits until the last of ours has left.
async fn it_waits_for_ours(engine: &Engine, name: &str, command: impl Fn(&Path) -> Command) {
    let locks = locks(&url(engine)).await.unwrap();
    let request = || locks.lock(name).ttl(secs(60));
    for mode in 0..3 {
        let mut guards = Vec::new();
        for _ in 0..2 {
            guards.push(match mode {
                0 if !guards.is_empty() => continue,
                0 => request().acquire().await.unwrap(),
                1 => request().shared().acquire().await.unwrap(),
                _ => request().permit(2).acquire().await.unwrap(),
            });
        }
        let mut child = Foreigner::start(&command);
        let (sender, mut said) = tokio::sync::oneshot::channel();
        let stdout = child.child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            let _ = sender.send((read.is_ok(), line));
        });
        let waits = async || locks.inspect(name).await.unwrap().is_some_and(|state| state.waiters.len() == 1);
        until("it waits", waits).await;
        for guard in guards {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(said.try_recv().is_err(), "it came in beside ours");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        assert!(soon("it is in", said).await.unwrap().0);
        assert!(request().try_acquire().await.unwrap().is_none(), "ours came in beside it");
        child.leave();
        until("it has left", async || locks.inspect(name).await.unwrap().is_none()).await;
    }
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
    ours_waits_for(&engine, "a/b", command).await;
    it_waits_for_ours(&engine, "a/b", command).await;
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
    ours_waits_for(&engine, "v3", command).await;
    it_waits_for_ours(&engine, "v3", command).await;
    assert_eq!(ctl(address, &["get", "--prefix", "/locks/"]), "", "nothing is left");
}

/// The judge can fail: without the lock they meet, and counts are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_they_lose_counts() {
    let engine = engines::private(&Config::etcd()).unwrap();
    assert!(crowd(&engine, false).await < 3 * OF_EACH * TIMES, "nobody met");
}
