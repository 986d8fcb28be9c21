//! Many tasks on one connection: what they ask goes out together, and each gets its own answer, in the order it asked.

use std::time::{Duration, Instant};

use crate::support::{backend, claim, locks};
use futures_util::poll;
use tollgate_core::{Backend, Locks};
use tollgate_testkit::engines::{self, Config};

const TASKS: usize = 64;
const TTL: Duration = Duration::from_secs(60);

fn url() -> String {
    format!("redis://{}", engines::shared(&Config::redis()).address())
}

async fn here() -> Locks {
    locks(&url()).await.unwrap()
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

/// A withdrawal goes out after what it withdraws, though it would go by itself, now that there are few, and the other waits
/// to go with others: otherwise locks stay held by nobody.
#[tokio::test]
async fn nothing_overtakes_what_waits_to_be_sent_with_others() {
    let backend = backend(&url()).await.unwrap();
    let claims: Vec<_> = (0..8).map(|number| claim(&format!("overtaken {number}"))).collect();
    // Redis knows the scripts then, and nobody has to ask twice.
    backend.try_acquire(&claims[0]).await.unwrap();
    backend.withdraw(&claims[0]).await.unwrap();
    let mut asking: Vec<_> = claims.iter().map(|claim| backend.try_acquire(claim)).collect();
    for asking in &mut asking {
        assert!(poll!(asking).is_pending(), "nothing has been sent");
    }
    drop(asking);
    for claim in claims.iter().rev() {
        backend.withdraw(claim).await.unwrap();
    }
    for claim in &claims {
        assert_eq!(backend.inspect(&claim.name).await.unwrap(), None, "held by nobody");
    }
}

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
