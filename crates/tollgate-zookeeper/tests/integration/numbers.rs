//! Folders whose numbers come to their end: ZooKeeper gives the last of them again and again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::java::java;
use crate::support::{config, hosts, locks, secs, soon};
use tollgate_core::{Locks, Release, Token};
use tollgate_testkit::engines::{self, Data, Engine};
use zookeeper_client::{Acls, Client, CreateMode};

const TASKS: usize = 20;
const TIMES: usize = 20;
/// How many numbers are left.
const LEFT: i32 = 30;

/// A ZooKeeper in which the folder of the lock `a`, which stays when it is empty, has counted to `number`.
async fn counted_to(number: i32) -> Engine {
    let engine = engines::private(&config(1)).unwrap();
    let plain = Client::connect(&hosts(&engine)).await.unwrap();
    plain.mkdir("/locks/a", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    drop(plain);
    engine.stop();
    let jars = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple"];
    let output = java("support/SetCounter.java", &jars)
        .arg(crate::support::zoo_cfg(&engine, &engine.nodes()[0]).with_file_name("data"))
        .args(["/locks/a", &number.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    engine.restart(Data::Kept).unwrap();
    engine
}

/// Something that only one may change at a time.
#[derive(Default)]
struct Ground {
    inside: AtomicUsize,
    count: AtomicUsize,
    last: std::sync::Mutex<Option<Token>>,
}

impl Ground {
    async fn pass(&self, locks: &Locks) {
        let guard = soon("it is in", locks.lock("a").ttl(secs(30)).acquire()).await.unwrap();
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two were in at once");
        let token = guard.token();
        let before = self.last.lock().unwrap().replace(token);
        assert!(before.is_none_or(|before| before < token), "{before:?}, then {token:?}");
        let count = self.count.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.count.store(count + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// How many claims that wait at once have a number that another has, at most, until nobody waits any more.
async fn most_alike(plain: &Client) -> usize {
    let mut most = 0;
    loop {
        let claims = plain.list_children("/locks/a").await.unwrap();
        let mut alike: HashMap<&str, usize> = HashMap::new();
        for claim in &claims {
            *alike.entry(claim.split_once("lock-").unwrap().1).or_default() += 1;
        }
        most = alike.into_values().fold(most, usize::max);
        if claims.is_empty() && most > 0 {
            return most;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_with_one_number_keep_each_other_out_in_the_order_in_which_they_came() {
    let engine = counted_to(i32::MAX - LEFT).await;
    let clients = [locks(&hosts(&engine)).await.unwrap(), locks(&hosts(&engine)).await.unwrap()];
    let plain = Client::connect(&hosts(&engine)).await.unwrap();
    let ground = Arc::<Ground>::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (locks, ground) = (clients[task % clients.len()].clone(), ground.clone());
            tokio::spawn(async move {
                for _ in 0..TIMES {
                    ground.pass(&locks).await;
                }
            })
        })
        .collect();
    let alike = most_alike(&plain);
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };
    let (alike, ()) = futures_util::future::join(alike, all).await;
    assert_eq!(ground.count.load(Ordering::SeqCst), TASKS * TIMES);
    assert!(alike > 1, "ZooKeeper gave every number once");
    println!("{alike} claims at once had one number");
}

#[tokio::test]
async fn whoever_looks_at_claims_with_one_number_sees_their_order() {
    let engine = counted_to(i32::MAX).await;
    let locks = locks(&hosts(&engine)).await.unwrap();
    let first = locks.lock("a").ttl(secs(30)).shared().acquire().await.unwrap();
    let second = locks.lock("a").ttl(secs(30)).shared().acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("a").ttl(secs(30)).acquire());
    crate::support::until("it waits", async || {
        locks.inspect("a").await.unwrap().is_some_and(|seen| seen.waiters.len() == 1)
    })
    .await;
    let seen = locks.inspect("a").await.unwrap().unwrap();
    let tokens: Vec<_> = seen.holders.iter().filter_map(|holder| holder.token).collect();
    assert_eq!(tokens, [first.token(), second.token()]);
    for token in tokens {
        assert_eq!(locks.revoke_by_force("a", token).await.unwrap(), tollgate_core::Revocation::Revoked);
    }
    let last = soon("it is in", waiting).await.unwrap().unwrap();
    assert!(last.token() > second.token());
    assert_eq!(last.release().await.unwrap(), Release::Released);
}
