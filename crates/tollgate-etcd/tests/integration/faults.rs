//! What happens to etcd and on the way to it: members that die, majorities that are lost, streams that fall silent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{backend, claim, ctl, etcdctl, leader, locks, secs, soon, until, url};
use tollgate_core::{Attempt, Backend, ErrorKind, GuardState, LossCause, Release};
use tollgate_testkit::crowd::{Crowd, pass_one_by_one};
use tollgate_testkit::engines::{self, Config, Data, Engine};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Close, Deed, Direction, Fate, Proxy, Which};

fn three() -> Engine {
    engines::private(&Config::etcd().nodes(3)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_an_election_and_nothing_else() {
    let engine = three();
    let clients = [locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap()];
    let held = clients[0].lock("held").ttl(secs(5)).acquire().await.unwrap();
    let crowd = Crowd::start(&clients, 6, secs(5));
    crowd.goes_on(10).await;
    for _ in 0..tollgate_testkit::scale::scale(2, 20) {
        let old = leader(&engine).expect("somebody leads");
        old.kill();
        let took = crowd.goes_on(10).await;
        println!("work went on {took:?} after the leader was killed");
        old.restart(Data::Kept).unwrap();
        until("the killed member is back", async || engine.answers()).await;
    }
    held.check().expect("a lock that is renewed outlives a leader");
    assert!(crowd.end().await > 20);
    assert_eq!(held.release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_killed_takes_no_lock_with_it() {
    let engine = three();
    let leading = leader(&engine).expect("somebody leads").address();
    let followers: Vec<_> = engine.nodes().iter().filter(|node| node.address() != leading).collect();
    // A client that knows the leader talks to it: these do not.
    let [one, other] = [followers[0], followers[1]].map(|node| node.address());
    let clients = [
        locks(&format!("etcd://{one},{other}/")).await.unwrap(),
        locks(&format!("etcd://{other},{one}/")).await.unwrap(),
        locks(&url(&engine)).await.unwrap(),
    ];
    let mut guards = Vec::new();
    for (n, locks) in clients.iter().enumerate() {
        guards.push(locks.lock(format!("own/{n}")).ttl(secs(5)).acquire().await.unwrap());
    }
    let crowd = Crowd::start(&clients, 6, secs(5));
    crowd.goes_on(10).await;
    followers[0].kill();
    crowd.goes_on(20).await;
    tokio::time::sleep(secs(5)).await;
    for guard in &guards {
        guard.check().expect("a session moves to another member");
    }
    crowd.end().await;
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_granted_and_with_it_everything_goes_on() {
    let engine = three();
    let locks = locks(&url(&engine)).await.unwrap();
    let guard = locks.lock("held").ttl(secs(3)).acquire().await.unwrap();
    let token = guard.token();
    let waiting = tokio::spawn(locks.lock("held").ttl(secs(30)).acquire());
    until("it waits", async || locks.inspect("held").await.unwrap().unwrap().waiters.len() == 1).await;
    for node in &engine.nodes()[..2] {
        node.kill();
    }
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::Expired);
    let refused = locks.lock("other").ttl(secs(3)).wait(secs(1)).try_acquire().await;
    assert!(!matches!(refused, Ok(Some(_))), "{refused:?} was granted by a minority");
    // Each is ready only together with another.
    std::thread::scope(|scope| {
        scope.spawn(|| engine.nodes()[1].restart(Data::Kept).unwrap());
        engine.nodes()[0].restart(Data::Kept).unwrap();
    });
    let next = soon("the waiter is in", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(next.release().await.unwrap(), Release::Released);
    let other = soon("new locks are to be had", locks.lock("other").ttl(secs(3)).acquire()).await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_cut_off_loses_its_locks_by_the_deadline() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let mine = locks(&format!("etcd://{}/", proxy.address())).await.unwrap();
    let theirs = locks(&url(&engine)).await.unwrap();
    let guard = mine.lock("a").ttl(secs(2)).acquire().await.unwrap();
    let next = tokio::spawn(theirs.lock("a").ttl(secs(2)).acquire());
    proxy.black_hole(Direction::Requests, Fate::Late);
    proxy.black_hole(Direction::Replies, Fate::Late);
    let cut = Instant::now();
    let cause = soon("the loss is signalled", guard.lost()).await;
    assert!(matches!(cause, LossCause::Expired | LossCause::SessionEnded), "{cause:?}");
    assert!(cut.elapsed() < Duration::from_millis(2400), "it was signalled only after {:?}", cut.elapsed());
    assert!(!next.is_finished(), "the next was in before the loss was signalled");
    let next = soon("the next is in", next).await.unwrap().unwrap();
    proxy.heal();
    drop(guard);
    soon("everything under way is answered", mine.close()).await;
    next.check().expect("what comes late touches nobody else's lock");
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_lease_that_is_revoked_behind_our_back_is_a_loss_at_once() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    let guards = [
        locks.lock("a").ttl(secs(60)).acquire().await.unwrap(),
        locks.lock("b").ttl(secs(60)).acquire().await.unwrap(),
    ];
    // Long enough that somebody listens.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let leases = ctl(engine.address(), &["lease", "list"]);
    let lease = leases.lines().last().unwrap();
    ctl(engine.address(), &["lease", "revoke", lease]);
    let revoked = Instant::now();
    for guard in &guards {
        let cause = soon("the loss is signalled", guard.lost()).await;
        assert!(matches!(cause, LossCause::Gone | LossCause::SessionEnded), "{cause:?}");
    }
    assert!(revoked.elapsed() < secs(2), "it was signalled only after {:?}", revoked.elapsed());
    // The next acquire must not use what is left of the session.
    let again = soon("it can be taken again", locks.lock("a").ttl(secs(60)).acquire()).await.unwrap();
    again.check().unwrap();
    assert_eq!(again.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_waiter_whose_lease_is_revoked_is_not_granted_by_that_and_queues_up_again() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let (holds, waits) = (backend(&url(&engine)).await.unwrap(), backend(&url(&engine)).await.unwrap());
    let Attempt::Granted(grant) = holds.try_acquire(&claim("a")).await.unwrap() else { panic!("it is free") };
    let before = ctl(engine.address(), &["lease", "list"]);
    let waiting = tokio::spawn(async move { waits.acquire(&claim("a")).await });
    let both =
        async || ctl(engine.address(), &["get", "--prefix", "--keys-only", "/locks/a/"]).lines().count() > 2;
    until("it waits", both).await;
    let leases = ctl(engine.address(), &["lease", "list"]);
    let lease = leases.lines().find(|line| !before.contains(*line) && !line.starts_with("found")).unwrap();
    ctl(engine.address(), &["lease", "revoke", lease]);
    until("it waits with another", async || both().await && !waiting.is_finished()).await;
    let claims = ctl(engine.address(), &["get", "--prefix", "--keys-only", "/locks/a/"]);
    assert!(!claims.contains(lease), "{claims}");
    assert_eq!(holds.release(&grant).await.unwrap(), Release::Released);
    let next = soon("it is in", waiting).await.unwrap().unwrap();
    assert!(next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_outlasts_an_etcd_that_is_away_for_longer_than_its_session() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    // Somebody who is not ours, and whom no lease ends.
    ctl(engine.address(), &["put", "/locks/a/somebody", ""]);
    let waiting = tokio::spawn(locks.lock("a").ttl(secs(2)).acquire());
    let waits =
        async || locks.inspect("a").await.is_ok_and(|seen| seen.is_some_and(|seen| seen.waiters.len() == 1));
    until("it waits", waits).await;
    engine.kill();
    tokio::time::sleep(secs(4)).await;
    assert!(!waiting.is_finished(), "it gave up");
    engine.restart(Data::Kept).unwrap();
    until("it waits again", waits).await;
    ctl(engine.address(), &["del", "/locks/a/somebody"]);
    drop(soon("it is in", waiting).await.unwrap().unwrap());
}

/// How an etcd is away for longer than a session lives.
#[derive(Debug, Clone, Copy)]
enum Away {
    /// It ends leases as soon as it goes on.
    Stopped,
    /// It gives every lease its whole ttl once more.
    Killed,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_queues_up_again_does_not_wait_for_its_own_old_place() {
    const TTL: u64 = 8;
    for away in [Away::Stopped, Away::Killed] {
        let engine = engines::private(&Config::etcd()).unwrap();
        let locks = locks(&url(&engine)).await.unwrap();
        ctl(engine.address(), &["put", "/locks/a/somebody", ""]);
        let waiting = tokio::spawn(locks.lock("a").ttl(secs(TTL)).acquire());
        let claims = async || {
            let keys = ctl(engine.address(), &["get", "--prefix", "--keys-only", "/locks/a/"]);
            keys.lines().filter(|key| key.ends_with("~x")).map(str::to_owned).collect::<Vec<_>>()
        };
        until("it waits", async || claims().await.len() == 1).await;
        let old = claims().await;
        match away {
            Away::Stopped => engine.pause(),
            Away::Killed => engine.kill(),
        }
        tokio::time::sleep(secs(TTL + 1)).await;
        let back = Instant::now();
        match away {
            Away::Stopped => engine.resume(),
            Away::Killed => engine.restart(Data::Kept).unwrap(),
        }
        ctl(engine.address(), &["del", "/locks/a/somebody"]);
        let guard = soon("it is in", waiting).await.unwrap().unwrap();
        println!("{away:?}: it was in {:?} after etcd was back", back.elapsed());
        assert!(back.elapsed() < secs(TTL / 2), "{away:?}: it waited for {:?}", back.elapsed());
        let now = claims().await;
        assert!(now.len() == 1 && now != old, "{away:?}: {now:?} is left, and it was {old:?}");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_leader_that_is_the_only_one_we_know_is_waited_for() {
    let engine = three();
    let known = engine.nodes()[0].address();
    let locks = locks(&format!("etcd://{known}/")).await.unwrap();
    let guard = locks.lock("a").ttl(secs(60)).acquire().await.unwrap();
    for other in &engine.nodes()[1..] {
        other.kill();
    }
    // As long as it asks again and again, and is refused at once.
    let refused = locks.lock("b").ttl(secs(60)).try_acquire().await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let seen = locks.inspect("a").await.unwrap_err();
    assert_eq!(seen.kind(), ErrorKind::Unavailable, "{seen}");
    for other in &engine.nodes()[1..] {
        other.restart(Data::Kept).unwrap();
    }
    until("it has a leader", async || locks.inspect("a").await.is_ok()).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_elect_a_leader_are_waited_for_by_those_who_connect() {
    let engine = three();
    for other in &engine.nodes()[1..] {
        other.kill();
    }
    let leads_nobody = || {
        let known = engine.nodes()[0].address();
        let asked = etcdctl(known).args(["endpoint", "status", "-w", "json"]).output().unwrap();
        // A leader that is none is left out.
        !String::from_utf8_lossy(&asked.stdout).contains("\"leader\"")
    };
    until("it has no leader", async || leads_nobody()).await;
    let connecting = tokio::spawn({
        let url = url(&engine);
        async move { locks(&url).await }
    });
    // It was refused by two, and by one without a leader.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!connecting.is_finished(), "{:?}", connecting.await.unwrap().err());
    engine.nodes()[1].restart(Data::Kept).unwrap();
    let locks = soon("it is connected", connecting).await.unwrap().expect("there is a leader");
    locks.lock("a").ttl(secs(5)).acquire().await.unwrap().release().await.unwrap();
    // If none comes, that is said.
    engine.nodes()[1].kill();
    until("it has no leader", async || leads_nobody()).await;
    let refused = soon("it is refused", backend(&url(&engine))).await.err().expect("there is no leader");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("no leader"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_outlive_an_etcd_that_is_started_again() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    let guard = locks.lock("held").ttl(secs(10)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("held").ttl(secs(10)).acquire());
    until("it waits", async || locks.inspect("held").await.unwrap().unwrap().waiters.len() == 1).await;
    engine.kill();
    tokio::time::sleep(secs(1)).await;
    engine.restart(Data::Kept).unwrap();
    guard.ensure(secs(8)).await.expect("the session goes on over another connection");
    assert_eq!(guard.state(), GuardState::Held);
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = soon("the waiter is in", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_outlives_a_compaction() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let through = crate::support::locks(&format!("etcd://{}/", proxy.address())).await.unwrap();
    let guard = locks.lock("held").ttl(secs(30)).acquire().await.unwrap();
    let waiting = tokio::spawn(through.lock("held").ttl(secs(30)).acquire());
    until("it waits", async || locks.inspect("held").await.unwrap().unwrap().waiters.len() == 1).await;
    for n in 0..20 {
        ctl(engine.address(), &["put", "other", &n.to_string()]);
    }
    let status = ctl(engine.address(), &["get", "other", "-w", "fields"]);
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    ctl(engine.address(), &["compact", "--physical", revision]);
    // Its watch begins again, after what it began with was compacted away.
    proxy.cut(Close::Abruptly);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = soon("the waiter is in", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_replaced_and_the_wait_goes_on() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let direct = locks(&url(&engine)).await.unwrap();
    let hosts = format!("etcd://{},{}/", proxy.address(), engine.address());
    let through = locks(&hosts).await.unwrap();
    let guard = direct.lock("a").ttl(secs(6)).acquire().await.unwrap();
    let held = through.lock("held").ttl(secs(6)).acquire().await.unwrap();
    let waiting = tokio::spawn(through.lock("a").ttl(secs(6)).acquire());
    until("it waits", async || direct.inspect("a").await.unwrap().unwrap().waiters.len() == 1).await;
    // Nobody is told; only what does not come shows it.
    proxy.black_hole(Direction::Replies, Fate::Lost);
    proxy.black_hole(Direction::Requests, Fate::Lost);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let began = Instant::now();
    let next = soon("the waiter is in", waiting).await.unwrap().unwrap();
    println!("the wait went on {:?} after its stream fell silent", began.elapsed());
    held.check().expect("the session went on over another connection");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_of_one_process_are_never_in_together() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let locks = locks(&url(&engine)).await.unwrap();
    pass_one_by_one(&locks, "one", 1000).await;
}

#[tokio::test]
async fn an_acquire_that_comes_later_than_its_withdrawal_takes_nothing() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    // The withdrawal finds another way.
    let hosts = format!("etcd://{},{}/", proxy.address(), engine.address());
    let theirs = locks(&url(&engine)).await.unwrap();
    for round in 0..tollgate_testkit::scale::scale(2, 1000) {
        let (mine, name) = (backend(&hosts).await.unwrap(), format!("late/{round}"));
        // The session is there, and only the acquire is late.
        let first = claim("first");
        assert!(matches!(mine.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
        let wanted = claim(&name);
        let held = proxy.on(
            Which::matching(|frame| crate::support::wire::asks_for(Operation::Acquire, frame)),
            Deed::Hold,
        );
        let given_up = tokio::time::timeout(Duration::from_millis(100), mine.acquire(&wanted)).await;
        assert!(given_up.is_err(), "it was held back");
        soon("the acquire is caught", held.caught()).await;
        // Over the connection that is held up first, and then over another.
        soon("the withdrawal is answered", async { while mine.withdraw(&wanted).await.is_err() {} }).await;
        held.let_go();
        held.over().await;
        assert_eq!(theirs.inspect(&name).await.unwrap(), None, "the late acquire left a claim behind");
        let guard = soon("it is free", theirs.lock(&name).acquire()).await.unwrap();
        guard.release().await.unwrap();
        mine.withdraw(&first).await.unwrap();
        proxy.heal();
    }
}

#[tokio::test]
async fn an_answer_that_is_slow_is_waited_for_though_others_on_its_connection_have_less_patience() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let mine = Arc::new(backend(&format!("etcd://{}/", proxy.address())).await.unwrap());
    // The session is there.
    let first = claim("first");
    assert!(matches!(mine.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
    let held = proxy
        .on(Which::matching(|frame| crate::support::wire::asks_for(Operation::Acquire, frame)), Deed::Hold);
    let slow = claim("slow");
    let acquiring = tokio::spawn({
        let (mine, slow) = (mine.clone(), slow.clone());
        async move { mine.acquire(&slow).await }
    });
    soon("the acquire is caught", held.caught()).await;
    // It waits behind the acquire, gives up after half a second, and asks again over another connection.
    assert_eq!(soon("it is answered", mine.inspect(&slow.name)).await.unwrap(), None);
    held.let_go();
    let grant = soon("the acquire is answered", acquiring).await.unwrap().expect("it was only slow");
    assert_eq!(mine.release(&grant).await.unwrap(), Release::Released);
}
