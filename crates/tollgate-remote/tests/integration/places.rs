//! Waiting claims: their places, and from when their deadlines count.

use std::time::Duration;

use tollgate_core::{Backend, Claim, Deadline, Mode, Release};
use tollgate_embedded::durable::Durability;
use tollgate_testkit::proxy::{Close, Native, Proxy};

use crate::support::Server;
use crate::{SECOND, backend, clock, locks, name, until};

#[tokio::test]
async fn a_waiter_keeps_its_place_when_its_connection_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Grace, 0);
    let proxy = Proxy::start(server.address(), Native);
    let (holder, through) = (locks(server.address()).await, locks(proxy.address()).await);
    let guard = holder.lock("a").acquire().await.unwrap();
    let waiters = async || holder.inspect("a").await.unwrap().unwrap().waiters.len();
    let first = tokio::spawn(through.lock("a").ttl(SECOND * 20).acquire());
    until("the first claim waits", async || waiters().await == 1).await;
    let second = tokio::spawn(holder.lock("a").acquire());
    until("the second claim waits", async || waiters().await == 2).await;
    for _ in 0..3 {
        proxy.cut(Close::Abruptly);
        until("the client is back", async || !proxy.connections().is_empty()).await;
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let first = tokio::time::timeout(SECOND * 10, first).await.unwrap().unwrap().unwrap();
    assert!(!second.is_finished(), "the second claim passed the first");
    assert_eq!(first.release().await.unwrap(), Release::Released);
    second.await.unwrap().unwrap().release().await.unwrap();
    server.stop();
}

#[tokio::test]
async fn a_hand_over_counts_from_a_call_that_was_sent_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Grace, 0);
    let (holder, waiter) = (locks(server.address()).await, backend(server.address()).await);
    let ttl = SECOND * 3;
    let guard = holder.lock("a").acquire().await.unwrap();
    let claim = Claim::new(name("a"), Mode::Exclusive, ttl);
    let waiting = tokio::spawn({
        let (waiter, claim) = (waiter.clone(), claim.clone());
        async move { waiter.acquire(&claim).await }
    });
    until("the claim waits", async || claim.wait_status.is_queued()).await;
    // Long enough that a deadline that counts from the acquire would have passed.
    tokio::time::sleep(ttl + SECOND).await;
    let before = clock().now();
    guard.release().await.unwrap();
    let grant = waiting.await.unwrap().unwrap();
    let Deadline::At(deadline) = grant.deadline else { panic!("a lease has a deadline") };
    // What the margin takes at most: of the ttl, and of the third of it that may lie between two
    // pings.
    let margin = Deadline::margin(ttl + ttl / 3) + Duration::from_millis(50);
    assert!(deadline + margin >= before + ttl, "the deadline counts from too early");
    let after = clock().now();
    assert!(deadline <= after + ttl, "the deadline counts from after the hand-over");
    assert_eq!(waiter.release(&grant).await.unwrap(), Release::Released);
    server.stop();
}

#[tokio::test]
async fn a_claim_whose_client_is_gone_leaves_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Grace, 0);
    let proxy = Proxy::start(server.address(), Native);
    let (holder, through) = (locks(server.address()).await, backend(proxy.address()).await);
    let guard = holder.lock("a").acquire().await.unwrap();
    let claim = Claim::new(name("a"), Mode::Exclusive, SECOND);
    let waiting = tokio::spawn(async move { through.acquire(&claim).await.map(drop) });
    let waiters = async || holder.inspect("a").await.unwrap().unwrap().waiters.len();
    until("the claim waits", async || waiters().await == 1).await;
    // As if its process was killed: nothing withdraws the claim, and nothing comes back.
    waiting.abort();
    proxy.refuse(true);
    proxy.cut(Close::Abruptly);
    until("the place is over", async || waiters().await == 0).await;
    guard.release().await.unwrap();
    server.stop();
}
