//! Looking at locks over connections that are slow.

use std::time::{Duration, Instant};

use crate::support::{config, hosts, locks, secs};
use futures_util::{StreamExt, TryStreamExt};
use tollgate_testkit::engines;
use tollgate_testkit::proxy::{Direction, LengthPrefixed, Proxy};

#[tokio::test]
async fn who_looks_for_long_is_not_taken_for_idle() {
    let engine = engines::private(&config(1)).unwrap();
    let holder = locks(&hosts(&engine)).await.unwrap();
    let mut guards = Vec::new();
    for name in 0..30 {
        guards.push(holder.lock(format!("{name:02}")).ttl(secs(60)).acquire().await.unwrap());
    }
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let looker = locks(&proxy.address().to_string()).await.unwrap();
    proxy.delay(Direction::Replies, Duration::from_millis(250));
    let since = Instant::now();
    let seen: Vec<_> = looker.list("").try_collect().await.unwrap();
    assert!(since.elapsed() > secs(11), "it was too quick to tell: {:?}", since.elapsed());
    assert_eq!(seen.len(), guards.len());
}

#[tokio::test]
async fn a_crowd_is_looked_at_in_a_few_round_trips() {
    let engine = engines::private(&config(1)).unwrap();
    let crowd = locks(&hosts(&engine)).await.unwrap();
    let holder = crowd.lock("x").ttl(secs(60)).acquire().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..100 {
        waiters.spawn(crowd.lock("x").ttl(secs(60)).acquire());
    }
    crate::support::until("all wait", async || {
        crowd.inspect("x").await.unwrap().is_some_and(|state| state.waiters.len() == 100)
    })
    .await;
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let looker = locks(&proxy.address().to_string()).await.unwrap();
    proxy.delay(Direction::Replies, Duration::from_millis(100));
    let since = Instant::now();
    assert_eq!(looker.inspect("x").await.unwrap().unwrap().waiters.len(), 100);
    assert_eq!(looker.list("").count().await, 1);
    assert!(since.elapsed() < secs(5), "{:?} for what takes ten round trips of 100 ms", since.elapsed());
    waiters.shutdown().await;
    holder.release().await.unwrap();
}
