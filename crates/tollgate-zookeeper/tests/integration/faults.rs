//! What happens to ZooKeeper and on the way to it: servers that die or are cut off, majorities that are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{
    TTL, backend_of, claim, config, hosts, leader, locks, one, secs, soon, three, until, zoo_cfg,
};
use tollgate_core::{
    Attempt, Backend, Claim, Clock, Deadline, ErrorKind, Extension, Grant, Locks, LossCause, Moment, Release,
};
use tollgate_testkit::clock::JumpingClock;
use tollgate_testkit::crowd::Crowd;
use tollgate_testkit::engines::{self, Data, Engine, Node};
use tollgate_testkit::proxy::{Close, Direction, Fate, LengthPrefixed, Proxy, Raw};
use tollgate_testkit::scale::scale;
use tollgate_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};

async fn waits(locks: &Locks, name: &str) -> bool {
    locks.inspect(name).await.is_ok_and(|seen| seen.is_some_and(|seen| seen.waiters.len() == 1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_costs_an_election_and_nothing_else() {
    let engine = three();
    let clients = [locks(&hosts(&engine)).await.unwrap(), locks(&hosts(&engine)).await.unwrap()];
    let held = clients[0].lock("held").ttl(secs(10)).acquire().await.unwrap();
    let crowd = Crowd::start(&clients, 6, secs(10));
    crowd.goes_on(10).await;
    for _ in 0..scale(2, 20) {
        let old = leader(&engine).expect("somebody leads");
        old.kill();
        let took = crowd.goes_on(10).await;
        println!("work went on {took:?} after the leader was killed");
        old.restart(Data::Kept).unwrap();
        until("the killed server is back", async || engine.answers() && leader(&engine).is_some()).await;
    }
    held.check().expect("a lock that is renewed outlives a leader");
    assert!(crowd.end().await > 20);
    assert_eq!(held.release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_with_the_shortest_ttl_is_kept_while_all_is_well() {
    const TICK: Duration = Duration::from_millis(500);
    let engine = engines::private(&config(1).argument("tickTime=500")).unwrap();
    let mut config = ZooKeeperConfig::from_url(&format!("zookeeper://{}/", hosts(&engine))).unwrap();
    config.tick = TICK;
    let locks = Locks::new(Arc::new(backend_of(config).await.unwrap())).unwrap();
    let ttl = locks.capabilities().ttl.min;
    assert_eq!(ttl, TICK * 6);
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(locks.lock(name).ttl(ttl).acquire().await.unwrap());
        // Each at another moment between two proofs of life.
        tokio::time::sleep(TICK / 3).await;
    }
    let (end, mut least) = (Instant::now() + ttl * 10, ttl);
    while Instant::now() < end {
        for guard in &guards {
            guard.check().expect("nothing happened to it");
            least = least.min(guard.remaining().unwrap());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("of {ttl:?} there were {least:?} left at least");
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// An ensemble whose third server reaches the others only through proxies, and follows one of them.
struct Severed {
    engine: Engine,
    ways: Vec<Proxy>,
}

impl Severed {
    fn start() -> Self {
        // It answers for 10 s without its leader.
        let engine = engines::private(&config(3).argument("syncLimit=50")).unwrap();
        let third = &engine.nodes()[2];
        third.kill();
        let path = zoo_cfg(&engine, third);
        let mut ways = Vec::new();
        let lines: Vec<String> = std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| match line.split_once('=') {
                Some((key @ ("server.1" | "server.2"), address)) => {
                    let ports: Vec<String> = address
                        .split(':')
                        .skip(1)
                        .map(|port| {
                            let real = format!("127.0.0.1:{port}").parse().unwrap();
                            let way = Proxy::start(real, Raw);
                            let port = way.address().port().to_string();
                            ways.push(way);
                            port
                        })
                        .collect();
                    format!("{key}=127.0.0.1:{}", ports.join(":"))
                }
                _ => line.to_owned(),
            })
            .collect();
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        assert_eq!(ways.len(), 4);
        third.restart(Data::Kept).unwrap();
        Self { engine, ways }
    }

    fn third(&self) -> &Node {
        &self.engine.nodes()[2]
    }

    fn cut(&self) {
        for way in &self.ways {
            way.black_hole(Direction::Requests, Fate::Late);
            way.black_hole(Direction::Replies, Fate::Late);
        }
    }

    fn heal(&self) {
        for way in &self.ways {
            way.heal();
            // What was held back would be believed.
            way.cut(Close::Abruptly);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_lock_on_a_server_that_is_cut_off_does_not_believe_it_for_longer_than_its_leader() {
    let severed = Severed::start();
    let others = severed.engine.nodes()[..2]
        .iter()
        .map(|node| node.address().to_string())
        .collect::<Vec<_>>()
        .join(",");
    let theirs = locks(&others).await.unwrap();
    let (mut worst, mut spare) = (Duration::ZERO, Duration::MAX);
    for round in 0..scale(2, 20) {
        let name = format!("cut/{round}");
        until("the third server follows", async || {
            crate::support::said(severed.third().address(), "srvr").contains("Mode: follower")
        })
        .await;
        let mine = locks(&severed.third().address().to_string()).await.unwrap();
        let plain = zookeeper_client::Client::connector()
            .with_session_timeout(secs(60))
            .connect(&severed.third().address().to_string())
            .await
            .unwrap();
        let guard = mine.lock(&name).ttl(TTL).acquire().await.unwrap();
        let next = tokio::spawn(theirs.lock(&name).ttl(TTL).acquire());
        until("somebody waits", async || waits(&theirs, &name).await).await;
        severed.cut();
        let lost = guard.lost();
        let lost = tokio::spawn(async move {
            lost.await;
            Instant::now()
        });
        let next = soon("the leader gives the lock away", next).await.unwrap().unwrap();
        let given = Instant::now();
        assert!(guard.check().is_err(), "held by two");
        let lost = soon("the loss is signalled", lost).await.unwrap();
        worst = worst.max(lost.saturating_duration_since(given));
        spare = spare.min(given.saturating_duration_since(lost));
        // The trap: whoever asks that server is told that nothing has changed.
        let claims = plain.list_children(&format!("/locks/{name}")).await.unwrap();
        assert_eq!(claims.len(), 2, "the server knows that it is cut off: {claims:?}");
        severed.heal();
        drop((guard, plain));
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
    println!("two believed in one lock for {worst:?} at worst; the first gave up {spare:?} before, at least");
    assert_eq!(worst, Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_granted_and_with_it_everything_goes_on() {
    let engine = three();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let guard = locks.lock("held").ttl(TTL).acquire().await.unwrap();
    let token = guard.token();
    let waiting = tokio::spawn(locks.lock("held").ttl(secs(30)).acquire());
    until("it waits", async || waits(&locks, "held").await).await;
    for node in &engine.nodes()[..2] {
        node.kill();
    }
    let cause = soon("the loss is signalled", guard.lost()).await;
    assert!(matches!(cause, LossCause::Expired | LossCause::SessionEnded), "{cause:?}");
    let refused = locks.lock("other").ttl(TTL).wait(secs(1)).try_acquire().await;
    assert!(!matches!(refused, Ok(Some(_))), "{refused:?} was granted by a minority");
    // Each is ready only together with another.
    std::thread::scope(|scope| {
        scope.spawn(|| engine.nodes()[1].restart(Data::Kept).unwrap());
        engine.nodes()[0].restart(Data::Kept).unwrap();
    });
    let next = soon("the waiter is in", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(next.release().await.unwrap(), Release::Released);
    let other = soon("new locks are to be had", locks.lock("other").ttl(TTL).acquire()).await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test]
async fn a_session_that_expired_at_the_server_is_lost_before_and_gives_nothing_back_after() {
    let engine = one();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let mine = locks(&proxy.address().to_string()).await.unwrap();
    let theirs = locks(&hosts(&engine)).await.unwrap();
    let guard = mine.lock("a").ttl(TTL).acquire().await.unwrap();
    let next = tokio::spawn(theirs.lock("a").ttl(TTL).acquire());
    proxy.black_hole(Direction::Requests, Fate::Late);
    proxy.black_hole(Direction::Replies, Fate::Late);
    let cause = soon("the loss is signalled", guard.lost()).await;
    assert!(matches!(cause, LossCause::Expired | LossCause::SessionEnded), "{cause:?}");
    assert!(!next.is_finished(), "the next was in before the loss was signalled");
    let next = soon("the next is in", next).await.unwrap().unwrap();
    proxy.heal();
    drop(guard);
    let again = tokio::spawn(mine.lock("a").ttl(TTL).acquire());
    until("the first is back, in a new session", async || waits(&theirs, "a").await).await;
    next.check().expect("what comes late touches nobody else's lock");
    assert_eq!(next.release().await.unwrap(), Release::Released);
    assert_eq!(soon("it is in", again).await.unwrap().unwrap().release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_outlasts_a_zookeeper_that_is_away_for_longer_than_its_session() {
    let engine = one();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    // Somebody who is not ours, and whom no session ends.
    let open = zookeeper_client::Acls::anyone_all();
    let stays = zookeeper_client::CreateMode::Persistent.with_acls(open);
    plain.mkdir("/locks/a", &stays).await.unwrap();
    plain.create("/locks/a/lock-0000000000", b"", &stays).await.unwrap();
    let waiting = tokio::spawn(locks.lock("a").ttl(TTL).acquire());
    until("it waits", async || waits(&locks, "a").await).await;
    engine.kill();
    tokio::time::sleep(TTL * 2).await;
    assert!(!waiting.is_finished(), "it gave up");
    engine.restart(Data::Kept).unwrap();
    until("it waits again", async || waits(&locks, "a").await).await;
    // The session before may have expired, too.
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    plain.delete("/locks/a/lock-0000000000", None).await.unwrap();
    drop(soon("it is in", waiting).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_outlive_a_zookeeper_that_is_started_again() {
    let engine = one();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let guard = locks.lock("held").ttl(secs(15)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("held").ttl(secs(15)).acquire());
    until("it waits", async || waits(&locks, "held").await).await;
    engine.kill();
    tokio::time::sleep(secs(1)).await;
    engine.restart(Data::Kept).unwrap();
    until("the session goes on over another connection", async || guard.ensure(secs(8)).await.is_ok()).await;
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = soon("the waiter is in", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Until when `backend` believes in `grant`.
async fn believed(backend: &dyn Backend, grant: &Grant) -> Moment {
    match backend.extend(grant, grant.ttl, None).await.unwrap() {
        Extension::Extended { deadline: Deadline::At(moment) } => moment,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_session_nobody_has_heard_of_for_long_keeps_its_place() {
    const TICK: Duration = secs(2);
    let engine = one();
    let (clock, ttl) = (JumpingClock::new(), secs(20));
    let mut config = ZooKeeperConfig::from_url(&format!("zookeeper://{}/", hosts(&engine))).unwrap();
    config.tick = TICK;
    let mine = Arc::new(ZooKeeperBackend::connect(config, Arc::new(clock.clone())).await.unwrap());
    let theirs = locks(&hosts(&engine)).await.unwrap();
    let first = theirs.lock("a").ttl(secs(60)).acquire().await.unwrap();
    let [probe, wanted] = ["probe", "a"].map(|name| Claim { ttl, ..claim(name) });
    let Attempt::Granted(probe) = mine.try_acquire(&probe).await.unwrap() else { panic!("it is free") };
    let waiting = tokio::spawn({
        let (mine, wanted) = (mine.clone(), wanted.clone());
        async move { mine.acquire(&wanted).await }
    });
    until("the second waits", async || waits(&theirs, "a").await).await;
    let third = tokio::spawn(theirs.lock("a").ttl(secs(60)).acquire());
    until("the third waits", async || {
        theirs.inspect("a").await.unwrap().is_some_and(|seen| seen.waiters.len() == 2)
    })
    .await;
    // Between two proofs of life, the next of which is not far.
    let before = believed(&*mine, &probe).await;
    until("it is heard of", async || believed(&*mine, &probe).await > before).await;
    tokio::time::sleep(TICK / 2).await;
    let end = believed(&*mine, &probe).await;
    clock.jump_unnoticed(end.since(clock.now()) + Duration::from_millis(100));
    assert_eq!(first.release().await.unwrap(), Release::Released);
    let grant = soon("the second is in", waiting).await.unwrap().unwrap();
    assert!(!third.is_finished(), "the third was in first");
    assert_eq!(mine.release(&grant).await.unwrap(), Release::Released);
    let third = soon("the third is in", third).await.unwrap().unwrap();
    assert!(grant.token < third.token());
    assert_eq!(third.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_node_that_somebody_deletes_is_a_loss_at_once() {
    let engine = one();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let guard = locks.lock("a").ttl(secs(60)).acquire().await.unwrap();
    // Long enough that somebody listens.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let node = plain.list_children("/locks/a").await.unwrap().remove(0);
    plain.delete(&format!("/locks/a/{node}"), None).await.unwrap();
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::Revoked);
    let again = soon("it can be taken again", locks.lock("a").ttl(secs(60)).acquire()).await.unwrap();
    assert_eq!(again.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_zookeeper_that_is_not_there_is_told_at_once_and_how() {
    let nobody = engines::spare_port();
    let began = Instant::now();
    let error = locks(&nobody.address().to_string()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(began.elapsed() < secs(3), "{:?}", began.elapsed());
}
