//! Leaders and connections that a session outlives, or must not believe: a deposed leader, a time-out that shrinks, a cut
//! connection with thousands of watches, and servers that say nothing.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::{TTL, backend_of, config, hosts, leader, locks, said, secs, soon, until, zoo_cfg};
use tollgate_core::{GuardState, Locks, LossCause, Release};
use tollgate_testkit::engines::{self, Data, Engine, Node};
use tollgate_testkit::proxy::{Close, Direction, Fate, LengthPrefixed, Proxy, Raw};
use tollgate_testkit::scale::scale;
use tollgate_zookeeper::ZooKeeperConfig;

/// The tick of the servers that are slower than elsewhere.
const SLOW_TICK: Duration = Duration::from_millis(500);

/// Three servers that reach each other only through proxies.
struct Meshed {
    engine: Engine,
    /// Who asks, who is asked, and the way.
    ways: Vec<(usize, usize, Proxy)>,
}

impl Meshed {
    fn start() -> Self {
        // A leader believes in itself for 30 s without the others; one that nobody follows gives up after 3 s.
        let engine = config(3).argument("tickTime=500").argument("syncLimit=60").argument("initLimit=6");
        let engine = engines::private(&engine).unwrap();
        engine.kill();
        let mut ways = Vec::new();
        for (from, node) in engine.nodes().iter().enumerate() {
            let path = zoo_cfg(&engine, node);
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<String> = text.lines().map(|line| rerouted(line, from, &mut ways)).collect();
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        }
        assert_eq!(ways.len(), 12);
        engine.restart(Data::Kept).unwrap();
        Self { engine, ways }
    }

    fn number(&self, node: &Node) -> usize {
        self.engine.nodes().iter().position(|other| other.address() == node.address()).unwrap()
    }

    fn others(&self, number: usize) -> Vec<&Node> {
        let nodes = self.engine.nodes().iter().enumerate();
        nodes.filter(|(other, _)| *other != number).map(|(_, node)| node).collect()
    }

    /// Cuts one server off, and nobody is told.
    fn cut(&self, number: usize) {
        for (_, _, way) in self.ways.iter().filter(|(from, to, _)| [*from, *to].contains(&number)) {
            way.black_hole(Direction::Requests, Fate::Late);
            way.black_hole(Direction::Replies, Fate::Late);
            // Those who look for a leader do not wait for this one.
            way.refuse(true);
        }
    }
}

/// A line of a configuration, with ways to the others instead of the others.
fn rerouted(line: &str, from: usize, ways: &mut Vec<(usize, usize, Proxy)>) -> String {
    let Some((key, address)) = line.split_once('=') else { return line.to_owned() };
    let Some(to) = key.strip_prefix("server.").map(|number| number.parse::<usize>().unwrap() - 1) else {
        return line.to_owned();
    };
    if to == from {
        return line.to_owned();
    }
    let mut rerouted = format!("{key}=127.0.0.1");
    for port in address.split(':').skip(1) {
        let way = Proxy::start(format!("127.0.0.1:{port}").parse().unwrap(), Raw);
        rerouted += &format!(":{}", way.address().port());
        ways.push((from, to, way));
    }
    rerouted
}

async fn slow_locks(nodes: &[&Node]) -> Locks {
    let nodes: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    slow_locks_at(&nodes.join(",")).await
}

async fn slow_locks_at(hosts: &str) -> Locks {
    let mut config = ZooKeeperConfig::from_url(&format!("zookeeper://{hosts}/")).unwrap();
    config.tick = SLOW_TICK;
    Locks::new(std::sync::Arc::new(backend_of(config).await.unwrap())).unwrap()
}

async fn waits(locks: &Locks, name: &str) -> bool {
    locks.inspect(name).await.is_ok_and(|seen| seen.is_some_and(|seen| seen.waiters.len() == 1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_lock_on_a_leader_that_was_deposed_does_not_believe_it() {
    const LIVES: Duration = Duration::from_secs(6);
    let meshed = Meshed::start();
    until("somebody leads", async || leader(&meshed.engine).is_some() && meshed.engine.answers()).await;
    let old = leader(&meshed.engine).unwrap();
    let number = meshed.number(old);
    let (mine, theirs) = (slow_locks(&[old]).await, slow_locks(&meshed.others(number)).await);
    let guard = mine.lock("deposed").ttl(LIVES).acquire().await.unwrap();
    let next = tokio::spawn(theirs.lock("deposed").ttl(LIVES).acquire());
    until("somebody waits", async || waits(&theirs, "deposed").await).await;
    // Long enough that the time counts from a proof.
    tokio::time::sleep(secs(2)).await;
    guard.check().unwrap();
    meshed.cut(number);
    let cut = Instant::now();
    let lost = guard.lost();
    let lost = tokio::spawn(async move {
        lost.await;
        Instant::now()
    });
    // They choose another at once, as those do that hear of it.
    std::thread::scope(|scope| {
        for node in meshed.others(number) {
            node.kill();
            scope.spawn(|| node.restart(Data::Kept).unwrap());
        }
    });
    let elected = cut.elapsed();
    assert!(said(old.address(), "srvr").contains("Mode: leader"), "it knows that it is deposed");
    let next = soon("the new leader gives the lock away", next).await.unwrap().unwrap();
    let given = Instant::now();
    assert!(guard.check().is_err(), "held by two");
    let lost = soon("the loss is signalled", lost).await.unwrap();
    println!(
        "elected after {elected:?}, lost after {:?}, given away after {:?}",
        lost.duration_since(cut),
        given.duration_since(cut)
    );
    assert!(lost <= given, "two believed in one lock for {:?}", lost.duration_since(given));
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn a_session_that_lives_for_less_after_a_reconnection_is_lost_at_once() {
    let engine = engines::private(&config(1)).unwrap();
    let mine = locks(&hosts(&engine)).await.unwrap();
    let guard = mine.lock("a").ttl(secs(30)).acquire().await.unwrap();
    let short = mine.lock("b").ttl(TTL).acquire().await.unwrap();
    engine.kill();
    let file = zoo_cfg(&engine, &engine.nodes()[0]);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("maxSessionTimeout=3600000", "maxSessionTimeout=3000")).unwrap();
    let lost = tokio::spawn(guard.lost());
    engine.restart(Data::Kept).unwrap();
    let cause = soon("the loss is signalled", lost).await.unwrap();
    // Long before its deadline.
    assert_eq!(cause, LossCause::SessionEnded);
    drop((guard, short));
    let again = soon("it can be taken again", mine.lock("b").ttl(TTL).acquire()).await.unwrap();
    assert_eq!(again.release().await.unwrap(), Release::Released);
}

/// How many watches a server has.
fn watches(engine: &Engine) -> usize {
    let text = said(engine.address(), "wchs");
    text.lines().find_map(|line| line.strip_prefix("Total watches:")?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_locks_outlive_a_cut_connection() {
    let engine = engines::private(&config(1)).unwrap();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let locks = locks(&proxy.address().to_string()).await.unwrap();
    let mut taking = tokio::task::JoinSet::new();
    let count = scale(3000, 10_000);
    for number in 0..count {
        // More than a server takes in one packet, all together.
        let name = format!("{number}/{}", "x".repeat(400));
        taking.spawn(locks.lock(&name).ttl(secs(30)).acquire());
    }
    let guards: Vec<_> = taking.join_all().await.into_iter().map(Result::unwrap).collect();
    let all_are_watched = async || {
        until("every lock is watched", async || {
            guards.iter().for_each(|guard| guard.check().unwrap());
            watches(&engine) >= count
        })
        .await;
    };
    for _ in 0..2 {
        all_are_watched().await;
        proxy.cut(Close::Abruptly);
        until("the watches are gone", async || watches(&engine) < count).await;
    }
    all_are_watched().await;
    guards[0].ensure(secs(15)).await.unwrap();
    assert!(guards.iter().all(|guard| guard.state() == GuardState::Held));
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    // What happens to them is told over the new connection.
    let folder = format!("/locks/0/{}", "x".repeat(400));
    let node = plain.list_children(&folder).await.unwrap().remove(0);
    plain.delete(&format!("{folder}/{node}"), None).await.unwrap();
    let lost = guards.iter().map(|guard| Box::pin(guard.lost()));
    let (cause, ..) = soon("a loss is signalled", futures_util::future::select_all(lost)).await;
    assert_eq!(cause, LossCause::Revoked);
}

#[tokio::test]
async fn servers_that_say_nothing_cost_a_second_each() {
    let engine = engines::private(&config(1)).unwrap();
    let silent: Vec<_> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut all: Vec<_> = silent.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect();
    all.push(engine.address().to_string());
    for _ in 0..4 {
        let began = Instant::now();
        let locks = locks(&all.join(",")).await.unwrap();
        // The good one is the last of six at worst, and may itself be slow.
        assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
        let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_root_that_one_may_not_read_proves_as_much() {
    let engine = engines::private(&config(1)).unwrap();
    let plain = zookeeper_client::Client::connector().with_auth("digest", b"root:secret");
    let plain = plain.connect(&hosts(&engine)).await.unwrap();
    let open = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    plain.mkdir("/locks", &open).await.unwrap();
    plain.set_acl("/", &zookeeper_client::Acls::creator_all(), None).await.unwrap();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
    tokio::time::sleep(TTL * 2).await;
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn repeated_looks_share_one_session_and_one_connection() {
    // A slower tick than elsewhere: the client gives a connection up after two thirds of the session's time-out.
    let engine = engines::private(&config(1).argument("tickTime=500")).unwrap();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let locks = slow_locks_at(&proxy.address().to_string()).await;
    let end = Instant::now() + secs(12);
    while Instant::now() < end {
        assert_eq!(locks.inspect("free").await.unwrap(), None);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(proxy.counts().connections, 1);
}
