//! Many tasks on one connection: what they ask goes out together, and each gets its own answer, in the order it asked.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use support::locks;
use tollgate_core::Locks;
use tollgate_testkit::engines::{self, Config};

const TASKS: usize = 64;
const TTL: Duration = Duration::from_secs(60);

async fn here() -> Locks {
    let engine = engines::shared(&Config::redis());
    locks(&format!("redis://{}", engine.address())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_gets_its_own_answer() {
    let locks = here().await;
    let tasks = (0..TASKS).map(|task| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let (name, mut last) = (format!("own {task}"), 0);
            for _ in 0..50 {
                let guard = locks.lock(&name).ttl(TTL).acquire().await.unwrap();
                assert_eq!(guard.name().as_str(), name);
                assert!(guard.token().get() > last, "an answer of somebody else, or an older one");
                last = guard.token().get();
                assert!(locks.lock(&name).ttl(TTL).try_acquire().await.unwrap().is_none(), "it is taken");
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// A withdrawal goes out after what it withdraws, by whichever way either goes: otherwise locks stay held by nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_give_up_leave_nothing_behind() {
    let locks = here().await;
    for round in 0..20 {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let name = format!("given up {task}");
                    let taken = locks.lock(name).ttl(TTL).acquire();
                    // At every stage: before it is sent, under way, answered.
                    let patience = Duration::from_micros((task * 17 % 800) as u64);
                    drop(tokio::time::timeout(patience, taken).await);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let started = Instant::now();
        for task in 0..TASKS {
            let name = format!("given up {task}");
            let guard = locks.lock(&name).ttl(TTL).wait(TTL / 2).acquire().await;
            guard.unwrap_or_else(|error| panic!("{name} in round {round}: {error}")).release().await.unwrap();
        }
        assert!(started.elapsed() < TTL / 2, "somebody's lock had to expire");
    }
}
