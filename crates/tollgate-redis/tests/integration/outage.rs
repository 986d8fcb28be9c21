//! Those who wait outlast a Redis that is away for a while, and those who come hear of it at once.

use std::time::{Duration, Instant};

use crate::redlock_support::Nodes;
use crate::support::{backend, cli, locks, until};
use tollgate_core::{
    Attempt, Backend, BootClock, Claim, Clock, Deadline, ErrorKind, Guard, Keeper, LockName, Locks,
    LossCause, Mode, Release, Result,
};
use tollgate_testkit::engines::{self, Config, Data, Engine};
use tollgate_testkit::proxy::{Deed, Discard, Proxy, Resp, Which};

const TTL: Duration = Duration::from_secs(3);

type Waiting = tokio::task::JoinHandle<Result<Guard>>;

/// Somebody who waits for the lock, in the queue already.
async fn waiter(engine: &Engine, locks: &Locks) -> Waiting {
    let waiting = tokio::spawn(locks.lock("a").ttl(TTL).acquire());
    until("it waits", async || cli(engine.address(), &["EXISTS", "{lock:a}:queue"]) == "1").await;
    waiting
}

fn url(engine: &Engine) -> String {
    format!("redis://{}/", engine.address())
}

/// Longer than a waiter takes to notice, and to try in vain.
async fn stay_away(waiting: &Waiting) {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        assert!(!waiting.is_finished(), "it gave up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_waiter_keeps_its_place_over_a_restart_that_keeps_the_data() {
    let engine = engines::private(&Config::durable_redis()).unwrap();
    let (ours, theirs) = (locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap());
    let held = ours.lock("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let waiting = waiter(&engine, &theirs).await;
    engine.kill();
    stay_away(&waiting).await;
    engine.restart(Data::Kept).unwrap();
    until("it waits again", async || {
        let state = theirs.inspect("a").await;
        state.is_ok_and(|state| state.is_some_and(|state| state.waiters.len() == 1))
    })
    .await;
    assert!(!waiting.is_finished(), "it came in beside the holder");
    let token = held.token();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().token() > token);
}

#[tokio::test]
async fn a_waiter_is_in_when_redis_comes_back_empty_and_the_lease_it_lost_is_over() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (ours, theirs) = (locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap());
    let held = ours.lock("a").ttl(TTL).no_renew().acquire().await.unwrap();
    let waiting = waiter(&engine, &theirs).await;
    engine.kill();
    stay_away(&waiting).await;
    engine.restart(Data::Lost).unwrap();
    let guard = tokio::time::timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap().unwrap();
    assert!(guard.token() > held.token(), "tokens rise over the restart");
}

#[tokio::test]
async fn what_a_waiter_asked_over_a_lost_connection_never_arrives_after_it_asked_again() {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Proxy::start(engine.address(), Resp);
    let ours = locks(&url(&engine)).await.unwrap();
    let theirs = locks(&format!("redis://{}/", proxy.address())).await.unwrap();
    let held = ours.lock("a").acquire().await.unwrap();
    let waiting = waiter(&engine, &theirs).await;
    let length = || cli(engine.address(), &["ZCARD", "{lock:a}:queue"]);
    // A refresh is on its way for so long that it is asked again over another connection.
    let acquire = tollgate_redis::hash_of("acquire").unwrap();
    let refresh = move |frame: &[u8]| frame.windows(acquire.len()).any(|part| part == acquire.as_bytes());
    let late = proxy.on(Which::matching(refresh), Deed::Hold);
    late.caught().await;
    let first = proxy.connections();
    until("it asks elsewhere", async || proxy.connections().iter().any(|now| !first.contains(now))).await;
    until("it waits again", async || length() == "1").await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();
    late.let_go();
    assert!(!late.over().await, "it arrived though its connection was closed on both sides");
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:a", "{lock:a}:queue"]), "0", "an orphan is left");
}

#[tokio::test]
async fn a_waiter_far_back_asks_again_when_its_connection_has_fallen_silent() {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Proxy::start(engine.address(), Resp);
    let ours = locks(&url(&engine)).await.unwrap();
    let theirs = locks(&format!("redis://{}/", proxy.address())).await.unwrap();
    let held = ours.lock("a").acquire().await.unwrap();
    let length = || cli(engine.address(), &["ZCARD", "{lock:a}:queue"]);
    let before = tokio::task::JoinSet::from_iter((0..30).map(|_| {
        let ours = ours.clone();
        async move { ours.lock("a").acquire().await.unwrap().release().await.unwrap() }
    }));
    until("many wait", async || length() == "30").await;
    // So far back, and with such a ttl, it looks by itself after half a minute only.
    let waiting = tokio::spawn(theirs.lock("a").ttl(Duration::from_secs(90)).acquire());
    until("it waits behind them", async || length() == "31").await;
    proxy.discard_pushes(Discard::All);
    held.release().await.unwrap();
    before.join_all().await;
    // Somebody else's question over the same connection is never answered.
    proxy.on(Which::matching(|_| true), Deed::Hold);
    let since = Instant::now();
    let asking = tokio::spawn(async move { theirs.inspect("b").await });
    drop(waiting.await.unwrap().unwrap());
    assert!(since.elapsed() < Duration::from_secs(20), "after {:?}", since.elapsed());
    asking.abort();
}

#[tokio::test]
async fn whoever_waits_at_a_redis_that_stands_still_longer_than_the_ttl_gets_in_afterwards() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (ours, theirs) = (locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap());
    let ttl = Duration::from_millis(800);
    let held = ours.lock("a").ttl(ttl).acquire().await.unwrap();
    let waiting = tokio::spawn(theirs.lock("a").ttl(ttl).acquire());
    until("it waits", async || cli(engine.address(), &["EXISTS", "{lock:a}:queue"]) == "1").await;
    engine.pause();
    tokio::time::sleep(3 * ttl).await;
    engine.resume();
    let guard = waiting.await.unwrap().unwrap();
    guard.check().unwrap();
    assert!(held.check().is_err(), "it was not renewed");
}

#[tokio::test]
async fn a_lock_that_was_held_to_the_end_was_not_lost_though_its_release_came_too_late() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    let ttl = Duration::from_millis(800);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    engine.pause();
    let releasing = tokio::spawn(guard.release());
    tokio::time::sleep(2 * ttl).await;
    engine.resume();
    assert_eq!(releasing.await.unwrap().unwrap(), Release::Released);
}

#[tokio::test]
async fn a_waiter_ends_by_what_waiting_cannot_better() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (ours, theirs) = (locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap());
    let _held = ours.lock("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let waiting = waiter(&engine, &theirs).await;
    cli(engine.address(), &["CONFIG", "SET", "requirepass", "other"]);
    cli(engine.address(), &["-a", "other", "CLIENT", "KILL", "TYPE", "pubsub"]);
    let error = tokio::time::timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_waiter_waits_no_longer_than_it_was_to() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (ours, theirs) = (locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap());
    let _held = ours.lock("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let (since, wait) = (Instant::now(), Duration::from_secs(3));
    let waiting = tokio::spawn(theirs.lock("a").wait(wait).try_acquire());
    until("it waits", async || cli(engine.address(), &["EXISTS", "{lock:a}:queue"]) == "1").await;
    engine.kill();
    // It was busy, but whether it still is, nobody can say.
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(since.elapsed() >= wait && since.elapsed() < wait * 5, "{:?}", since.elapsed());
}

#[tokio::test]
async fn whoever_comes_while_redis_is_away_hears_of_it_at_once() {
    let engine = engines::private(&Config::redis()).unwrap();
    let ours = locks(&url(&engine)).await.unwrap();
    engine.kill();
    let since = Instant::now();
    let coming = tokio::time::timeout(Duration::from_secs(15), ours.lock("a").acquire()).await;
    let error = coming.expect("it is told").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
    assert_eq!(locks(&url(&engine)).await.err().unwrap().kind(), ErrorKind::Unavailable);
    assert!(since.elapsed() < Duration::from_secs(4), "it took {:?}", since.elapsed());
}

#[tokio::test]
async fn a_waiter_outlasts_a_majority_that_is_away() {
    let nodes = Nodes::ready(3, &Config::durable_redis()).await;
    let (ours, theirs) = (nodes.locks().await, nodes.locks().await);
    let held = ours.lock("a").ttl(crate::redlock_support::MAX_TTL).acquire().await.unwrap();
    let waiting = tokio::spawn(theirs.lock("a").ttl(crate::redlock_support::MAX_TTL).acquire());
    // It has been told that the lock is busy, and is asking again.
    let asked = async || nodes.raw::<String>(0, &["INFO", "commandstats"]).await;
    let calls = |stats: String| -> u64 {
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
        line.split(['=', ',']).nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(0)
    };
    let before = calls(asked().await);
    until("it waits", async || calls(asked().await) > before + 3).await;
    nodes.node(0).kill();
    nodes.node(1).kill();
    stay_away(&waiting).await;
    nodes.restart(0, Data::Kept);
    nodes.restart(1, Data::Kept);
    let guard = tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap().unwrap();
    assert!(guard.token() > held.token());
}

/// A holder that is not renewed may rely on its lease until its deadline, whatever Redis has forgotten.
#[tokio::test]
async fn a_waiter_that_redis_forgot_gets_in_only_when_the_lease_of_the_holder_is_over() {
    let clock = BootClock::new(Keeper::global().unwrap());
    for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(2).unwrap()] {
        let engine = engines::private(&Config::redis()).unwrap();
        let (ours, theirs) = (backend(&url(&engine)).await.unwrap(), backend(&url(&engine)).await.unwrap());
        let claim =
            |mode, seconds| Claim::new(LockName::new("a").unwrap(), mode, Duration::from_secs(seconds));
        // The lease is longer than the waiter's ttl.
        let Attempt::Granted(held) = ours.try_acquire(&claim(Mode::Exclusive, 4)).await.unwrap() else {
            panic!("it is free")
        };
        let waits = claim(mode, 2);
        let waiting = tokio::spawn(async move { theirs.acquire(&waits).await });
        until("it waits", async || cli(engine.address(), &["EXISTS", "{lock:a}:queue"]) == "1").await;
        cli(engine.address(), &["FLUSHALL"]);
        let granted = waiting.await.unwrap().unwrap();
        let Deadline::At(deadline) = held.deadline else { panic!("a lease has a deadline") };
        assert!(clock.now() >= deadline, "{mode:?}: {:?} too early", deadline.since(clock.now()));
        assert!(granted.token > held.token);
        assert_eq!(ours.release(&held).await.unwrap(), Release::AlreadyLost);
    }
}

#[tokio::test]
async fn a_holder_that_redis_forgot_hears_of_it_before_a_waiter_is_in() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (ours, theirs) = (locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap());
    // It renews every 2 s, and the waiter asks after one.
    let ttl = Duration::from_secs(6);
    let held = ours.lock("a").ttl(ttl).acquire().await.unwrap();
    let waiting = tokio::spawn(theirs.lock("a").ttl(ttl).acquire());
    until("it waits", async || cli(engine.address(), &["EXISTS", "{lock:a}:queue"]) == "1").await;
    cli(engine.address(), &["FLUSHALL"]);
    assert_eq!(held.lost().await, LossCause::Gone);
    assert!(!waiting.is_finished(), "both are in");
    // Neither a new claim nor another client gets ahead of the waiter.
    until("the waiter is back", async || cli(engine.address(), &["EXISTS", "lock:a"]) == "1").await;
    assert!(ours.lock("a").try_acquire().await.unwrap().is_none());
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.token() > held.token());
}
