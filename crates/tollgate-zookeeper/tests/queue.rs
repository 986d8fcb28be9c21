//! Queues: places that somebody deletes, permits that move, a thousand who want in.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::{hosts, locks, one, secs, soon, until};
use tollgate_core::Release;
use tollgate_testkit::proxy::{Deed, LengthPrefixed, Proxy, Which};

#[tokio::test]
async fn a_place_that_somebody_deletes_is_taken_again_at_the_end() {
    let engine = one();
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
    let engine = one();
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

#[tokio::test]
async fn a_permit_that_moves_before_it_is_watched_wakes_the_next_all_the_same() {
    let engine = one();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let locks = locks(&proxy.address().to_string()).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let open = zookeeper_client::Acls::anyone_all();
    plain.mkdir("/locks/a", &zookeeper_client::CreateMode::Persistent.with_acls(open)).await.unwrap();
    let mut permits = Vec::new();
    for tag in ["a", "b", "c"] {
        let start = format!("/locks/a/{}-p2-lock-", tag.repeat(32));
        let options = zookeeper_client::CreateMode::EphemeralSequential.with_acls(open);
        let (_, number) = plain.create(&start, b"{}", &options).await.unwrap();
        permits.push(format!("{start}{number}"));
    }
    // Two are in, and the third waits. The fourth is about to watch it.
    let watched = permits[2].clone().into_bytes();
    let names_it = move |frame: &[u8]| frame.windows(watched.len()).any(|part| part == watched);
    let held = proxy.on(Which::matching(names_it), Deed::Hold);
    let waiting = tokio::spawn(locks.lock("a").ttl(secs(30)).permit(2).acquire());
    soon("it is about to watch the third", held.caught()).await;
    plain.delete(&permits[0], None).await.unwrap();
    plain.set_data(&permits[2], b"{}", None).await.unwrap();
    held.let_go();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "three were in");
    plain.delete(&permits[1], None).await.unwrap();
    // Long before it would look again by itself.
    let woken = tokio::time::timeout(secs(5), waiting).await.expect("nobody told it");
    assert_eq!(woken.unwrap().unwrap().release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_of_one_process_are_never_in_together() {
    let engine = one();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..1000)
        .map(|_| {
            let (locks, inside) = (locks.clone(), inside.clone());
            tokio::spawn(async move {
                let guard = locks.lock("one").acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two were in at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let token = guard.token();
                guard.release().await.unwrap();
                token
            })
        })
        .collect();
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(task.await.unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 1000);
}
