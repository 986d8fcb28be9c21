//! Places in a queue that somebody deletes.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::{config, hosts, locks, secs, soon, until};
use tollgate_core::Release;
use tollgate_testkit::engines;

#[tokio::test]
async fn a_place_that_somebody_deletes_is_taken_again_at_the_end() {
    let engine = engines::private(&config(1)).unwrap();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let children = async || plain.list_children("/locks/queue/a").await.unwrap();
    let request = || locks.lock("queue/a").ttl(secs(60));
    let held = request().acquire().await.unwrap();
    let first = children().await.remove(0);
    let waiting = tokio::spawn(request().acquire());
    until("it waits", async || children().await.len() == 2).await;
    let deleted = children().await.into_iter().find(|node| *node != first).unwrap();
    // Long enough that it hears of what is before it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    plain.delete(&format!("/locks/queue/a/{deleted}"), None).await.unwrap();
    until("it has another place", async || {
        let now = children().await;
        now.len() == 2 && !now.contains(&deleted)
    })
    .await;
    assert_eq!(held.release().await.unwrap(), Release::Released);
    let guard = soon("it is in", waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_place_that_is_deleted_just_before_the_last_one_leaves_lets_nobody_in() {
    let engine = engines::private(&config(1)).unwrap();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let children = async || plain.list_children("/locks/queue/b").await.unwrap();
    let request = || locks.lock("queue/b").ttl(secs(60));
    let mut held = request().acquire().await.unwrap();
    for _ in 0..30 {
        let before = children().await;
        let waiting = tokio::spawn(request().acquire());
        until("it waits", async || children().await.len() == 2).await;
        let place = children().await.into_iter().find(|node| !before.contains(node)).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        plain.delete(&format!("/locks/queue/b/{place}"), None).await.unwrap();
        held.release().await.unwrap();
        held = soon("it is in", waiting).await.unwrap().unwrap();
        let now = children().await;
        assert!(now.len() == 1 && !now.contains(&place), "it holds the lock by {place}; there is {now:?}");
    }
    held.release().await.unwrap();
}
