//! Writers that race, and come too late: refused, and without the fence not.

use std::time::Duration;

use crate::support::fenced::{on_shared, writer};
use redis::AsyncCommands;
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
