//! Keys that are used again: what belongs to the claim before never touches the one that has its key now.

use std::sync::Arc;

use crate::support::late::Late;
use crate::support::{backend, claim, ctl, locks, secs, soon, until, url};
use tollgate_core::{Attempt, Backend, Grant, Release};
use tollgate_etcd::EtcdBackend;
use tollgate_testkit::engines::{self, Config, Engine};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Close, Deed, Proxy, Which};

async fn taken(backend: &EtcdBackend, name: &str) -> Grant {
    match backend.try_acquire(&claim(name)).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Busy(contention) => panic!("{name} is free, and not {contention:?}"),
    }
}

/// The lease and the number that a grant's key is made of.
fn spot(grant: &Grant) -> (String, String) {
    let mut parts = grant.handle.as_deref().unwrap().split('.').map(str::to_owned);
    (parts.next().unwrap(), parts.next().unwrap())
}

async fn holds(backend: &EtcdBackend, grant: &Grant) -> bool {
    let state = backend.inspect(&grant.name).await.unwrap();
    state.is_some_and(|state| state.holders.iter().any(|holder| holder.token == Some(grant.token)))
}

#[tokio::test]
async fn a_second_release_of_a_grant_leaves_the_next_one_alone() {
    let engine = engines::shared(&Config::etcd());
    let backend = backend(&url(engine)).await.unwrap();
    let first = taken(&backend, "second-release").await;
    assert_eq!(backend.release(&first).await.unwrap(), Release::Released);
    let next = taken(&backend, "second-release").await;
    assert_eq!(spot(&first), spot(&next), "they have the same key");
    assert!(next.token > first.token);
    assert_eq!(backend.release(&first).await.unwrap(), Release::AlreadyLost);
    assert!(holds(&backend, &next).await, "it was released by somebody else's");
    assert_eq!(backend.release(&next).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_release_that_was_not_answered_and_comes_late_leaves_the_next_one_alone() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let backend = backend(&format!("etcd://{},{}/", proxy.address(), engine.address())).await.unwrap();
    let first = taken(&backend, "late").await;
    let held = proxy
        .on(Which::matching(|frame| crate::support::wire::asks_for(Operation::Release, frame)), Deed::Hold);
    // It finds another way.
    assert_eq!(soon("it is released", backend.release(&first)).await.unwrap(), Release::Released);
    soon("the first request is caught", held.caught()).await;
    let next = taken(&backend, "late").await;
    assert_ne!(spot(&first), spot(&next), "what is late would delete it");
    held.let_go();
    held.over().await;
    assert!(holds(&backend, &next).await, "the late release deleted it");
    assert_eq!(backend.release(&next).await.unwrap(), Release::Released);
    let third = taken(&backend, "late").await;
    assert_ne!(spot(&first), spot(&third), "nobody knows when the last copy comes");
    assert_eq!(backend.release(&third).await.unwrap(), Release::Released);
}

/// A client whose session is there, and the proxy that its requests go through.
async fn through_proxy(engine: &Engine) -> (Proxy, EtcdBackend) {
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let mine = backend(&format!("etcd://{}/", proxy.address())).await.unwrap();
    let first = taken(&mine, "first").await;
    assert_eq!(mine.release(&first).await.unwrap(), Release::Released);
    (proxy, mine)
}

const LOSE: Deed = Deed::LoseAndCut(Close::Abruptly);

#[tokio::test]
async fn a_copy_of_an_acquire_that_comes_after_the_release_takes_nothing() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let theirs = backend(&url(&engine)).await.unwrap();
    for operation in [Operation::Acquire, Operation::TryAcquire] {
        let ((proxy, mine), late) = (through_proxy(&engine).await, Late::default());
        proxy.on(late.noting(operation), LOSE);
        let grant = match operation {
            Operation::Acquire => {
                soon("it is asked for again", mine.acquire(&claim("copied"))).await.unwrap()
            }
            _ => soon("it is asked for again", taken(&mine, "copied")).await,
        };
        assert_eq!(late.count(), 1, "the first copy was lost");
        assert!(holds(&theirs, &grant).await);
        // While it is held, after it was released, and while the next one has the same key.
        assert_eq!(late.arrive(engine.address()).await, ["0"]);
        assert!(holds(&theirs, &grant).await);
        assert_eq!(mine.release(&grant).await.unwrap(), Release::Released);
        assert_eq!(late.arrive(engine.address()).await, ["0"]);
        assert_eq!(theirs.inspect(&grant.name).await.unwrap(), None, "{operation:?}: a late copy took it");
        let next = taken(&mine, "copied").await;
        assert_eq!(spot(&next), spot(&grant), "nothing keeps its key from being used again");
        assert_eq!(late.arrive(engine.address()).await, ["0"]);
        assert!(next.token > grant.token && holds(&theirs, &next).await);
        assert_eq!(mine.release(&next).await.unwrap(), Release::Released);
        assert_eq!(late.arrive(engine.address()).await, ["0"]);
        assert_eq!(theirs.inspect(&grant.name).await.unwrap(), None, "{operation:?}: a late copy took it");
    }
}

#[tokio::test]
async fn a_copy_of_an_attempt_that_comes_after_it_was_called_busy_takes_nothing() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let theirs = backend(&url(&engine)).await.unwrap();
    let ((proxy, mine), late) = (through_proxy(&engine).await, Late::default());
    let grant = taken(&theirs, "busy").await;
    proxy.on(late.noting(Operation::TryAcquire), LOSE);
    let busy = soon("it is asked for again", mine.try_acquire(&claim("busy"))).await.unwrap();
    assert!(matches!(busy, Attempt::Busy(_)), "{busy:?}");
    assert_eq!(theirs.release(&grant).await.unwrap(), Release::Released);
    assert_eq!(late.arrive(engine.address()).await, ["0"]);
    assert_eq!(theirs.inspect(&grant.name).await.unwrap(), None, "a late copy took it");
}

#[tokio::test]
async fn no_copy_of_an_acquire_that_was_given_up_comes_later() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let theirs = backend(&url(&engine)).await.unwrap();
    let ((proxy, mine), late, wanted) = (through_proxy(&engine).await, Late::default(), claim("given-up"));
    // Two are lost with their connections, and the third gets no answer.
    let deeds = [LOSE, LOSE, Deed::Lose];
    let [.., third] = deeds.map(|deed| proxy.on(late.noting(Operation::Acquire), deed));
    tokio::select! {
        () = soon("the third copy is lost", third.caught()) => {}
        acquired = mine.acquire(&wanted) => panic!("nobody answered, and it is {acquired:?}"),
    }
    soon("the withdrawal is answered", async { while mine.withdraw(&wanted).await.is_err() {} }).await;
    assert_eq!(late.arrive(engine.address()).await, ["0", "0", "0"]);
    assert_eq!(theirs.inspect(&wanted.name).await.unwrap(), None, "a late copy took it");
}

#[tokio::test]
async fn claims_that_are_there_together_have_keys_of_their_own() {
    let engine = engines::shared(&Config::etcd());
    let locks = locks(&url(engine)).await.unwrap();
    let shared = async || locks.lock("together").shared().ttl(secs(60)).acquire().await.unwrap();
    let guards = [shared().await, shared().await, shared().await];
    let spots: std::collections::BTreeSet<_> = guards.iter().map(|guard| spot(guard.grant())).collect();
    assert_eq!(spots.len(), 3, "{spots:?}");
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// Nothing on the wire repeats a request of HTTP/2, but something that calls by itself may: it puts the key once more.
#[tokio::test]
async fn what_an_acquire_left_that_was_executed_again_is_its_clients_next_place() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let (mine, theirs) = (backend(&url(&engine)).await.unwrap(), backend(&url(&engine)).await.unwrap());
    let first = taken(&mine, "twice").await;
    let (lease, slot) = spot(&first);
    assert_eq!(mine.release(&first).await.unwrap(), Release::Released);
    let key = format!("/locks/twice/{lease}-{slot}~x");
    ctl(engine.address(), &["put", &format!("--lease={lease}"), &key, "again"]);
    let busy = theirs.try_acquire(&claim("twice")).await.unwrap();
    assert!(matches!(busy, Attempt::Busy(_)), "a claim that was put is one: {busy:?}");
    let next = soon("its client is in", mine.acquire(&claim("twice"))).await.unwrap();
    assert!(next.token > first.token, "no token is given twice");
    assert_eq!(mine.release(&next).await.unwrap(), Release::Released);
    let last = taken(&theirs, "twice").await;
    assert!(last.token > next.token);
    assert_eq!(theirs.release(&last).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_waiter_is_not_misled_by_a_later_claim_with_the_key_it_waits_for() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let ahead = Arc::new(backend(&url(&engine)).await.unwrap());
    let behind = backend(&format!("etcd://{}/", proxy.address())).await.unwrap();
    let first = taken(&ahead, "turn").await;
    let (lease, slot) = spot(&first);
    let key = format!("/locks/turn/{lease}-{slot}~x").into_bytes();
    let held =
        proxy.on(Which::matching(move |frame| frame.windows(key.len()).any(|part| part == key)), Deed::Hold);
    let waiting = tokio::spawn(async move { (behind.acquire(&claim("turn")).await, behind) });
    // Its watch is made only after the one before it has gone, and come again behind it.
    soon("the watch is caught", held.caught()).await;
    assert_eq!(ahead.release(&first).await.unwrap(), Release::Released);
    let again = tokio::spawn({
        let ahead = ahead.clone();
        async move { ahead.acquire(&claim("turn")).await }
    });
    until("it has come again", async || {
        ahead.inspect(&first.name).await.unwrap().is_some_and(|state| state.waiters.len() == 1)
    })
    .await;
    held.let_go();
    let (grant, behind) = tokio::time::timeout(secs(8), waiting).await.expect("nobody is before it").unwrap();
    let grant = grant.unwrap();
    assert_eq!(behind.release(&grant).await.unwrap(), Release::Released);
    let again = soon("the other is in again", again).await.unwrap().unwrap();
    assert_eq!(spot(&again), spot(&first), "it has the same key");
    assert!(again.token > grant.token && grant.token > first.token);
    assert_eq!(ahead.release(&again).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_watch_on_a_runtime_that_stands_still_is_nobody_elses() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let ahead = backend(&url(&engine)).await.unwrap();
    let behind = Arc::new(backend(&url(&engine)).await.unwrap());
    let first = taken(&ahead, "turn").await;
    let (leave, standing) = std::sync::mpsc::channel::<()>();
    let elsewhere = std::thread::spawn({
        let behind = behind.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let grant = runtime.block_on(behind.acquire(&claim("turn"))).unwrap();
            runtime.block_on(behind.release(&grant)).unwrap();
            // It is there, and nothing in it runs.
            let _ = standing.recv();
        }
    });
    let waits =
        async || ahead.inspect(&first.name).await.unwrap().is_some_and(|state| state.waiters.len() == 1);
    until("it waits elsewhere", waits).await;
    assert_eq!(ahead.release(&first).await.unwrap(), Release::Released);
    until("it has been in", async || ahead.inspect(&first.name).await.unwrap().is_none()).await;

    let second = taken(&ahead, "turn").await;
    assert_eq!(spot(&second), spot(&first), "it has the same key");
    let waiting =
        tokio::spawn(async move { behind.acquire(&claim("turn")).await.map(|grant| (grant, behind)) });
    until("it waits here", waits).await;
    assert_eq!(ahead.release(&second).await.unwrap(), Release::Released);
    let (grant, behind) =
        tokio::time::timeout(secs(8), waiting).await.expect("it hears of it").unwrap().unwrap();
    assert_eq!(behind.release(&grant).await.unwrap(), Release::Released);
    drop(leave);
    elsewhere.join().unwrap();
}

#[tokio::test]
async fn an_attempt_that_was_executed_unanswered_is_known_again_behind_many_who_came_later() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let (proxy, backend) = through_proxy(&engine).await;
    let lost = proxy.on(
        Which::matching(|frame| crate::support::wire::asks_for(Operation::TryAcquire, frame)),
        Deed::LoseReply,
    );
    let (wanted, backend) = (claim("wedge"), Arc::new(backend));
    let attempt = tokio::spawn({
        let (wanted, backend) = (wanted.clone(), backend.clone());
        async move { backend.try_acquire(&wanted).await }
    });
    soon("the first copy is caught", lost.caught()).await;
    until("it was executed", async || {
        !ctl(engine.address(), &["get", "--prefix", "--keys-only", "/locks/wedge/"]).is_empty()
    })
    .await;
    // In one transaction: they come before the second copy does.
    let puts: String = (0..70).map(|n| format!("put /locks/wedge/other{n} x\n")).collect();
    crate::support::transact(engine.address(), &puts);
    let Attempt::Granted(grant) = soon("it is answered", attempt).await.unwrap().unwrap() else {
        panic!("it is called busy because of itself");
    };
    assert!(holds(&backend, &grant).await);
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
}
