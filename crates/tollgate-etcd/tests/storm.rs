//! Many tasks on fifty names while leaders are killed, and replies that are lost by the thousand in a soak.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{leader, locks, secs, until, url};
use tollgate_core::{Guard, Locks, Release};
use tollgate_testkit::engines::{self, Config, Data, Engine};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Close, Deed, Proxy, Which};
use tollgate_testkit::scale::scale;

const NAMES: usize = 50;
const CLIENTS: usize = 8;
const TASKS: usize = 64;

/// What was granted, name by name.
struct Ledger {
    /// The largest token of each name.
    largest: Vec<Mutex<u64>>,
    inside: Vec<AtomicUsize>,
    grants: AtomicUsize,
    failures: AtomicUsize,
    enough: usize,
}

impl Ledger {
    fn new(enough: usize) -> Self {
        Self {
            largest: (0..NAMES).map(|_| Mutex::new(0)).collect(),
            inside: (0..NAMES).map(|_| AtomicUsize::new(0)).collect(),
            grants: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
            enough,
        }
    }

    fn is_over(&self) -> bool {
        self.grants.load(Ordering::SeqCst) >= self.enough
    }
}

/// Takes and gives back locks until there were enough.
async fn passages(locks: Locks, ledger: Arc<Ledger>, number: usize) {
    for round in 0.. {
        if ledger.is_over() {
            return;
        }
        let name = (number * 31 + round * 7) % NAMES;
        let request = locks.lock(format!("storm/{name}")).ttl(secs(5)).wait(secs(10));
        let Ok(guard) = request.acquire().await else {
            ledger.failures.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if guard.check().is_err() {
            continue;
        }
        assert_eq!(ledger.inside[name].fetch_add(1, Ordering::SeqCst), 0, "two were in {name} at once");
        let token = guard.token().get();
        {
            let mut largest = ledger.largest[name].lock().unwrap();
            assert!(token > *largest, "{token} was granted after {largest} on name {name}");
            *largest = token;
        }
        tokio::task::yield_now().await;
        ledger.inside[name].fetch_sub(1, Ordering::SeqCst);
        ledger.grants.fetch_add(1, Ordering::SeqCst);
        let _ = guard.release().await;
    }
}

/// Kills the leader again and again, until it is told to stop or has done it often enough.
fn kill_leaders(engine: &Engine, ledger: &Ledger, stop: &AtomicBool) -> (usize, Duration) {
    let (mut kills, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) && kills < scale(3, 200) {
        std::thread::sleep(Duration::from_millis(scale(500, 5000) as u64));
        let Some(old) = leader(engine) else { continue };
        old.kill();
        let (since, before) = (Instant::now(), ledger.grants.load(Ordering::SeqCst));
        while ledger.grants.load(Ordering::SeqCst) < before + 10 && !stop.load(Ordering::Relaxed) {
            assert!(since.elapsed() < secs(30), "work does not go on after the leader was killed");
            std::thread::sleep(Duration::from_millis(5));
        }
        longest = longest.max(since.elapsed());
        old.restart(Data::Kept).unwrap();
        kills += 1;
    }
    (kills, longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_die_cost_elections_and_no_overlap() {
    let engine = Arc::new(engines::private(&Config::etcd().nodes(3)).unwrap());
    let ledger = Arc::new(Ledger::new(scale(2_000, 1_000_000)));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(locks(&url(&engine)).await.unwrap());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let killer = std::thread::spawn({
        let (engine, ledger, stop) = (engine.clone(), ledger.clone(), stop.clone());
        move || kill_leaders(&engine, &ledger, &stop)
    });
    let since = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        tasks.spawn(passages(clients[number % CLIENTS].clone(), ledger.clone(), number));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let took = since.elapsed();
    stop.store(true, Ordering::Relaxed);
    let (kills, longest) = tokio::task::spawn_blocking(move || killer.join().unwrap()).await.unwrap();
    println!(
        "{} grants over {NAMES} names in {:.1} s, {kills} leaders killed, work went on within {longest:.1?}, {} acquires \
         failed: nobody met anybody, no token stepped back",
        ledger.grants.load(Ordering::SeqCst),
        took.as_secs_f64(),
        ledger.failures.load(Ordering::SeqCst),
    );
    assert!(kills > 0, "nothing was killed meanwhile");
}

#[tokio::test]
async fn replies_that_are_lost_leave_nothing_behind() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), support::wire::http2());
    let direct = locks(&url(&engine)).await.unwrap();
    let mine = locks(&format!("etcd://{}/", proxy.address())).await.unwrap();
    let on = |operation, deed| {
        proxy.on(Which::matching(move |frame| support::wire::asks_for(operation, frame)), deed)
    };
    let is_idle = async |name: &str| direct.inspect(name).await.unwrap().is_none();
    let is_held_by = async |name: &str, guard: &Guard| {
        let seen = direct.inspect(name).await.unwrap().expect("it is held");
        assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0));
        assert_eq!(seen.holders[0].token, Some(guard.token()));
    };
    let rounds = scale(3, 1000);
    for round in 0..rounds {
        for deed in [Deed::CutInsteadOfReply(Close::Abruptly), Deed::LoseAndCut(Close::Abruptly)] {
            let name = format!("lost/{}", round % 10);
            let request = || mine.lock(&name).ttl(secs(300));
            let lost = on(Operation::Acquire, deed);
            let guard = request().acquire().await.expect("it is asked for again");
            lost.over().await;
            is_held_by(&name, &guard).await;
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert!(is_idle(&name).await, "the acquire left something");

            let lost = on(Operation::TryAcquire, deed);
            let guard = request().try_acquire().await.expect("it is asked for again").expect("it is free");
            lost.over().await;
            is_held_by(&name, &guard).await;

            let lost = on(Operation::Release, deed);
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            lost.over().await;
            assert!(is_idle(&name).await, "the release left something");

            let held = direct.lock(&name).ttl(secs(300)).acquire().await.unwrap();
            let lost = on(Operation::Withdraw, deed);
            assert!(request().wait(Duration::from_millis(20)).try_acquire().await.unwrap().is_none());
            lost.over().await;
            until("the withdrawal is repeated", async || {
                direct.inspect(&name).await.unwrap().unwrap().waiters.is_empty()
            })
            .await;
            assert_eq!(held.release().await.unwrap(), Release::Released);
        }
    }
    println!("{} replies and requests of each operation were lost: nothing was left behind", 2 * rounds);
}
