//! Writers that come too late, in a race and from a process that was stopped: refused, and without the fence not.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::AsyncCommands;
use support::fenced::{connection, on_shared, shared, writer};
use support::locks;
use tollgate_core::ErrorKind;
use tollgate_redis::{FencedScript, RedisFence};

/// Two writers that leave the lock before they write, one of them often late. What arrived, in that order, and how
/// many writes were refused.
async fn race(name: &'static str, fenced: bool) -> (Vec<u64>, usize) {
    let log = FencedScript::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let mut writers = Vec::new();
    for late in [false, true] {
        let log = log.clone();
        writers.push(tokio::spawn(async move {
            let (locks, mut redis) = on_shared().await;
            let fence = RedisFence::around(name).unwrap();
            let mut refused = 0;
            for round in 0..1000 {
                let token = writer(&locks, name).await;
                if late && round % 2 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if !fenced {
                    let _: u64 = redis.rpush(name, u64::from(token)).await.unwrap();
                    continue;
                }
                let call = log.key(name).arg(u64::from(token));
                match fence.run::<_, u64>(&mut redis, call, token).await {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Lost => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            refused
        }));
    }
    let mut refused = 0;
    for writer in writers {
        refused += writer.await.unwrap();
    }
    let arrived = on_shared().await.1.lrange(name, 0, -1).await.unwrap();
    (arrived, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_racing_writers_no_stale_one_writes_after_a_newer_and_without_the_fence_some_do() {
    let (arrived, refused) = race("race", true).await;
    assert!(arrived.is_sorted(), "a stale write came after a newer");
    assert!(refused > 0, "they did not meet");
    assert_eq!(arrived.len() + refused, 2000, "no other write is lost");
    let (unfenced, _) = race("race-unfenced", false).await;
    assert!(!unfenced.is_sorted(), "the same run without the fence shows nothing");
}

const ASKED: &str = "FENCE_HOLDER";

/// A process that takes the lock, reads, and writes when it is told to.
#[tokio::test]
#[ignore = "the other side of the test below"]
async fn helper_process() {
    let asked = std::env::var(ASKED).unwrap();
    let [address, key, how] = asked.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let (locks, mut redis) =
        (locks(&format!("redis://{address}/")).await.unwrap(), connection(address).await);
    let guard = locks.lock(key).ttl(Duration::from_millis(500)).acquire().await.unwrap();
    let fence = RedisFence::around(key).unwrap();
    fence.admit(&mut redis, guard.fence().unwrap()).await.unwrap();
    let seen: String = redis.get(key).await.unwrap();
    // Checked a moment ago, and then the process stands still.
    let proof = guard.fence().unwrap();
    println!("@read {seen}");
    std::io::stdin().lines().next().unwrap().unwrap();
    let value = format!("{seen} late");
    if how == "fenced" {
        match fence.set(&mut redis, key, value, proof).await {
            Ok(()) => println!("@written"),
            Err(error) => println!("@{:?}, guard valid: {}", error.kind(), guard.fence().is_ok()),
        }
    } else {
        let () = redis.set(key, value).await.unwrap();
        println!("@written");
    }
}

/// The process, killed when it is dropped.
struct Holder(Child, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Holder {
    fn start(address: SocketAddr, key: &str, how: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper_process", "--ignored", "--nocapture"])
            .env(ASKED, format!("{address} {key} {how}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    fn hear(&mut self) -> String {
        self.1.by_ref().map(Result::unwrap).find_map(|line| Some(line.split_once('@')?.1.to_owned())).unwrap()
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A holder is stopped beyond its ttl, another takes over and writes, and the first one goes on. What the first one
/// said, and what is there in the end.
async fn overtaken(key: &str, how: &str) -> (String, String) {
    let (locks, mut redis) = on_shared().await;
    let () = redis.set(key, "begun").await.unwrap();
    let mut holder = Holder::start(shared(), key, how);
    assert_eq!(holder.hear(), "read begun");
    holder.signal("-STOP");
    let guard = locks.lock(key).wait(Duration::from_secs(30)).acquire().await.unwrap();
    let fence = RedisFence::around(key).unwrap();
    fence.admit(&mut redis, guard.fence().unwrap()).await.unwrap();
    let seen: String = redis.get(key).await.unwrap();
    fence.set(&mut redis, key, format!("{seen} next"), guard.fence().unwrap()).await.unwrap();
    holder.signal("-CONT");
    writeln!(holder.0.stdin.as_ref().unwrap(), "write").unwrap();
    (holder.hear(), redis.get(key).await.unwrap())
}

#[tokio::test]
async fn a_paused_holder_cannot_write_and_without_the_fence_it_destroys_what_came_after() {
    let fenced = overtaken("paused", "fenced").await;
    assert_eq!(fenced, ("Lost, guard valid: false".to_owned(), "begun next".to_owned()));
    let plain = overtaken("paused-unfenced", "plain").await;
    assert_eq!(plain, ("written".to_owned(), "begun late".to_owned()), "the other's write is lost");
}
