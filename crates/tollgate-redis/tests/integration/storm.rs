//! Many tasks on fifty names while servers are killed and started again: no token is given twice, and none steps back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::redlock_support::{MAX_TTL, Nodes};
use tollgate_core::{BootClock, Keeper, Locks, Token};
use tollgate_redis::RedlockBackend;
use tollgate_testkit::engines::{self, Config, Data, Engine};
use tollgate_testkit::scale::scale;

const NAMES: usize = 50;
const CLIENTS: usize = 8;
const TASKS: usize = 64;
/// At least.
const GRANTS_BETWEEN_KILLS: usize = 1000;

/// So many servers are killed at least.
const LEAST_KILLS: usize = 2;

/// How bad it is.
#[derive(Clone, Copy)]
struct Weather {
    /// What a server that was killed has when it starts again.
    data: Data,
    /// How long nothing is killed.
    pause: Duration,
    ttl: Duration,
    /// After how many grants it is over.
    enough: usize,
}

impl Weather {
    fn new(data: Data, pause: usize, ttl: Duration) -> Self {
        let pause = Duration::from_millis(scale(pause, 5000) as u64);
        Self { data, pause, ttl, enough: scale(8_000, 1_000_000) }
    }
}

/// What was granted, name by name.
#[derive(Default)]
struct Ledger {
    names: Vec<Mutex<Granted>>,
    grants: AtomicUsize,
    failures: AtomicUsize,
    kills: AtomicUsize,
}

#[derive(Default)]
struct Granted {
    tokens: HashSet<Token>,
    largest: Option<Token>,
}

impl Ledger {
    fn new() -> Self {
        Self { names: (0..NAMES).map(|_| Mutex::default()).collect(), ..Self::default() }
    }

    /// The largest token that was granted before an acquisition starts.
    fn largest(&self, name: usize) -> Option<Token> {
        self.names[name].lock().unwrap().largest
    }

    fn grant(&self, name: usize, token: Token, before: Option<Token>) {
        let mut granted = self.names[name].lock().unwrap();
        assert!(Some(token) > before, "{token} was granted after {before:?} on name {name}");
        assert!(granted.tokens.insert(token), "{token} was granted twice on name {name}");
        granted.largest = granted.largest.max(Some(token));
        self.grants.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes and gives back locks until there were enough.
async fn passages(locks: Locks, ledger: Arc<Ledger>, number: usize, weather: Weather) {
    for round in 0.. {
        // A fast machine has its grants before the second server is killed.
        let killed = ledger.kills.load(Ordering::Relaxed) >= LEAST_KILLS;
        if killed && ledger.grants.load(Ordering::Relaxed) >= weather.enough {
            return;
        }
        let name = (number * 31 + round * 7) % NAMES;
        let before = ledger.largest(name);
        let request = locks.lock(format!("storm/{name}")).ttl(weather.ttl);
        match request.wait(Duration::from_secs(5)).acquire().await {
            Ok(guard) => {
                ledger.grant(name, guard.token(), before);
                // What becomes of it then is not this test's: it may be lost with its server.
                let _ = guard.release().await;
            }
            Err(_) => {
                ledger.failures.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Kills one server after the other and starts it again, until it is told to stop. On a slow machine it waits for
/// the grants of a pause on a fast one: else there would be more and more kills for the same grants, without end.
fn kill_in_turn(engines: &[Engine], weather: Weather, ledger: &Ledger, stop: &AtomicBool) -> usize {
    let mut kills = 0;
    while !stop.load(Ordering::Relaxed) {
        let until = Instant::now() + weather.pause;
        let enough = ledger.grants.load(Ordering::Relaxed) + GRANTS_BETWEEN_KILLS;
        let go_on = || Instant::now() < until || ledger.grants.load(Ordering::Relaxed) < enough;
        while go_on() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let engine = &engines[kills % engines.len()];
        engine.kill();
        engine.restart(weather.data).unwrap();
        kills += 1;
        ledger.kills.store(kills, Ordering::Relaxed);
    }
    kills
}

async fn storm(what: &str, engines: Vec<Engine>, weather: Weather, open: impl AsyncFn() -> Locks) {
    let ledger = Arc::new(Ledger::new());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(open().await);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let killer = std::thread::spawn({
        let (stop, ledger) = (stop.clone(), ledger.clone());
        move || kill_in_turn(&engines, weather, &ledger, &stop)
    });
    let since = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        tasks.spawn(passages(clients[number % CLIENTS].clone(), ledger.clone(), number, weather));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let (took, kills) = (since.elapsed(), killer.join().unwrap());
    println!(
        "{what}: {} grants over {NAMES} names in {:.1} s, {kills} servers killed, {} requests failed: no token twice, \
         none stepped back",
        ledger.grants.load(Ordering::Relaxed),
        took.as_secs_f64(),
        ledger.failures.load(Ordering::Relaxed),
    );
    assert!(kills >= LEAST_KILLS, "{kills} servers were killed meanwhile");
}

/// As many nodes that vote, of which one after the other is killed. With short ttls, so that those which forgot
/// everything vote again soon.
async fn redlock(what: &str, count: usize, config: &Config, weather: Weather) {
    let nodes = Nodes::new(count, config);
    crate::redlock_support::initialized(&nodes.config).await;
    let Nodes { engines, config } = nodes;
    storm(what, engines, weather, async || {
        let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
        Locks::new(Arc::new(RedlockBackend::connect(config.clone(), clock).await.unwrap())).unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_that_lose_their_data_never_give_a_token_twice() {
    redlock("three Redises without a disk", 3, &Config::redis(), Weather::new(Data::Lost, 3500, MAX_TTL))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_nodes_that_lose_their_last_second_never_give_a_token_twice() {
    let config = Config::redis().argument("--appendonly").argument("yes");
    redlock("five Redises that may lose a second", 5, &config, Weather::new(Data::Kept, 1500, MAX_TTL)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_redis_that_keeps_its_data_never_gives_a_token_twice() {
    let engine = engines::private(&Config::durable_redis()).unwrap();
    let url = format!("redis://{}/", engine.address());
    let weather = Weather::new(Data::Kept, 700, Duration::from_secs(2));
    storm("one Redis with a disk", vec![engine], weather, async || {
        crate::support::locks(&url).await.unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_redis_that_loses_its_data_goes_on_from_the_clock() {
    let engine = engines::private(&Config::redis()).unwrap();
    let url = format!("redis://{}/", engine.address());
    let weather = Weather::new(Data::Lost, 700, Duration::from_secs(2));
    storm("one Redis without", vec![engine], weather, async || crate::support::locks(&url).await.unwrap())
        .await;
}
