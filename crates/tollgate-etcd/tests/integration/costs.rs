//! What a lock costs etcd: proposals, requests, and keys that it has to remember.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use crate::support::{locks, secs, until, url};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt};
use tollgate_core::{LockName, Locks, Token};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::Proxy;
use tollgate_testkit::scale::scale;

/// How much has gone through the log of the member at `address`.
fn proposals(address: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("etcd_server_proposals_committed_total "));
    line.unwrap().parse::<f64>().unwrap() as u64
}

#[tokio::test]
async fn a_lock_that_nobody_else_wants_costs_two_proposals() {
    for nodes in [1, 3] {
        let engine = engines::private(&Config::etcd().nodes(nodes)).unwrap();
        let locks = locks(&url(&engine)).await.unwrap();
        let cycle = async || locks.lock("a").ttl(secs(60)).acquire().await.unwrap().release().await.unwrap();
        // The session is there.
        cycle().await;
        let (before, cycles) = (proposals(engine.address()), 200);
        for _ in 0..cycles {
            cycle().await;
        }
        let spent = proposals(engine.address()) - before;
        println!("{cycles} times taken and given back on {nodes}: {spent} proposals");
        // A member that follows may not have seen the last few, or see an election.
        assert!((2 * cycles - 4..=2 * cycles + 4).contains(&spent), "{spent} proposals for {cycles} cycles");
    }
}

/// What passes through `proxy` for each hand-over of one lock through a queue of so many.
async fn frames_per_hand_over(proxy: &Proxy, locks: &Locks, waiters: usize) -> f64 {
    let name = format!("queue/{waiters}");
    let held = locks.lock(&name).ttl(secs(60)).acquire().await.unwrap();
    let mut queue = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        let request = locks.lock(&name).ttl(secs(60));
        queue.spawn(async move { request.acquire().await.unwrap().release().await.unwrap() });
    }
    until("all wait", async || {
        locks.inspect(&name).await.unwrap().is_some_and(|state| state.waiters.len() == waiters)
    })
    .await;
    // Every watch is in place.
    tokio::time::sleep(secs(1)).await;
    proxy.take_counts();
    held.release().await.unwrap();
    while let Some(done) = queue.join_next().await {
        done.unwrap();
    }
    proxy.take_counts().requests as f64 / waiters as f64
}

#[tokio::test]
async fn a_hand_over_takes_as_many_requests_however_many_wait() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let locks = locks(&format!("etcd://{}/", proxy.address())).await.unwrap();
    let few = frames_per_hand_over(&proxy, &locks, 20).await;
    let many = frames_per_hand_over(&proxy, &locks, scale(300, 1000)).await;
    println!("frames for each hand-over: {few:.1} with few waiters, {many:.1} with many");
    assert!(many <= few * 1.5 && many < 12.0, "{few:.1} frames became {many:.1}");
}

#[tokio::test]
async fn a_list_takes_a_few_requests_for_a_page_and_no_more_where_tokens_were_raised() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let backend = Arc::new(crate::support::backend(&url(&engine)).await.unwrap());
    let mine = Locks::new(backend.clone()).unwrap();
    let name = |n: usize| format!("listed/{n:04}");
    let listed = crate::support::locks(&format!("etcd://{}/", proxy.address())).await.unwrap();
    for raised in [&[][..], &[0, 377, 599]] {
        for n in raised {
            let floor = Token::new((1 << 40) + *n as u64).unwrap();
            backend.raise_floor(&LockName::new(name(*n)).unwrap(), floor).await.unwrap();
        }
        let request = |n| mine.lock(name(n)).ttl(secs(60)).acquire();
        let guards: Vec<_> = try_join_all((0..600).map(request)).await.unwrap();
        listed.list("").count().await;
        proxy.take_counts();
        let seen: Vec<_> = listed.list("listed/").try_collect().await.unwrap();
        let requests = proxy.take_counts().requests;
        println!("a list of {} locks, {} of them raised: {requests} frames", seen.len(), raised.len());
        assert!(requests < 60, "{requests} frames for {} locks", seen.len());
        let mut tokens: Vec<_> =
            seen.iter().map(|state| (state.name.to_string(), state.holders[0].token)).collect();
        tokens.sort();
        let held: Vec<_> =
            guards.iter().enumerate().map(|(n, guard)| (name(n), Some(guard.token()))).collect();
        assert_eq!(tokens, held);
        assert_eq!(raised.len(), held.iter().filter(|(_, token)| token.unwrap().get() > 1 << 40).count());
        try_join_all(guards.into_iter().map(|guard| guard.release())).await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_is_taken_again_and_again_leaves_one_key_in_the_index() {
    let engine = engines::shared(&Config::etcd());
    let url = url(engine);
    let (locks, fence) = (tollgate::connect(&url).await.unwrap(), tollgate::etcd::fence(&url).unwrap());
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let guard = locks.lock("again").ttl(secs(60)).acquire().await.unwrap();
        keys.insert(fence.key(guard.grant()).unwrap().key);
        guard.release().await.unwrap();
    }
    assert_eq!(keys.len(), 1, "{keys:?}");
}
