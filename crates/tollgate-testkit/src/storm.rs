//! Many tasks on fifty names while servers are killed, and replies that are lost by the thousand in a soak.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate_core::{ErrorKind, Guard, Locks, Release, Result};

use crate::fault::Operation;
use crate::proxy::{Caught, Close, Deed};
use crate::scale::scale;
use crate::subject::eventually;

const NAMES: usize = 50;
const TASKS: usize = 64;
const TTL: Duration = Duration::from_secs(10);
/// How long work may stand still.
const STANDSTILL: Duration = Duration::from_secs(30);

/// Brings back what was killed.
pub type Repair<'a> = Box<dyn FnOnce() + 'a>;

/// What was granted, name by name.
struct Ledger {
    /// The largest token of each name.
    largest: Vec<Mutex<u64>>,
    inside: Vec<AtomicUsize>,
    grants: AtomicUsize,
    failures: AtomicUsize,
    enough: usize,
}

/// How a storm went: nobody met anybody, and no token stepped back, or it would not have ended.
#[derive(Debug)]
pub struct Calm {
    grants: usize,
    failures: usize,
    took: Duration,
    /// How often something was killed.
    pub kills: usize,
    /// How long work stood still at most.
    pub longest: Duration,
}

impl fmt::Display for Calm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, failures, took, kills, longest } = self;
        write!(
            f,
            "{grants} grants over {NAMES} names in {:.1} s, {kills} servers killed, work went on within \
             {longest:.1?}, {failures} acquires failed: no two holders overlapped, no token decreased",
            took.as_secs_f64()
        )
    }
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
        let request = locks.lock(format!("storm/{name}")).ttl(TTL).wait(TTL);
        let Ok(guard) = request.acquire().await else {
            ledger.failures.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if guard.check().is_err() {
            continue;
        }
        assert_eq!(ledger.inside[name].fetch_add(1, Ordering::SeqCst), 0, "two holders of {name} overlapped");
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

/// Kills again and again, until it is told to stop or has done it often enough.
fn rage<'a>(ledger: &Ledger, stop: &AtomicBool, kill: impl Fn() -> Option<Repair<'a>>) -> (usize, Duration) {
    let (mut kills, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) && kills < scale(3, 200) {
        std::thread::sleep(Duration::from_millis(scale(500, 5000) as u64));
        let Some(repair) = kill() else { continue };
        let (since, before) = (Instant::now(), ledger.grants.load(Ordering::SeqCst));
        while ledger.grants.load(Ordering::SeqCst) < before + 10 && !stop.load(Ordering::Relaxed) {
            assert!(since.elapsed() < STANDSTILL, "work does not go on after a server was killed");
            std::thread::sleep(Duration::from_millis(5));
        }
        longest = longest.max(since.elapsed());
        repair();
        kills += 1;
    }
    (kills, longest)
}

/// Takes locks with `clients` while `kill` kills, or cannot just now, until there were 2 000 grants, or a million in a soak.
pub async fn storm<'a>(clients: &[Locks], kill: impl Fn() -> Option<Repair<'a>> + Send) -> Calm {
    let ledger = Arc::new(Ledger::new(scale(2_000, 1_000_000)));
    let (stop, since) = (AtomicBool::new(false), Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        tasks.spawn(passages(clients[number % clients.len()].clone(), ledger.clone(), number));
    }
    let (kills, longest) = std::thread::scope(|scope| {
        let raging = scope.spawn(|| rage(&ledger, &stop, kill));
        // The tasks are on the runtime's other threads.
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                while let Some(done) = tasks.join_next().await {
                    done.unwrap();
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
        raging.join().unwrap()
    });
    let count = |number: &AtomicUsize| number.load(Ordering::SeqCst);
    let (grants, failures) = (count(&ledger.grants), count(&ledger.failures));
    assert!(kills > 0, "nothing was killed meanwhile");
    Calm { grants, failures, took: since.elapsed(), kills, longest }
}

/// Loses requests and replies of every operation, three times each or a thousand in a soak. `on` does something to the next
/// request of `mine`; `direct` has another way.
pub async fn lose_replies(direct: &Locks, mine: &Locks, on: impl Fn(Operation, Deed) -> Caught) {
    let rounds = scale(3, 1000);
    for round in 0..rounds {
        for deed in [Deed::CutInsteadOfReply(Close::Abruptly), Deed::LoseAndCut(Close::Abruptly)] {
            let name = format!("lost/{}", round % 10);
            let request = || mine.lock(&name).ttl(Duration::from_secs(300));
            let lost = on(Operation::Acquire, deed);
            let acquired = request().acquire().await.map(Some);
            lost.over().await;
            known_or_nothing(direct, &name, acquired).await;

            let lost = on(Operation::TryAcquire, deed);
            let acquired = request().try_acquire().await;
            lost.over().await;
            known_or_nothing(direct, &name, acquired).await;

            let guard = request().acquire().await.unwrap();
            let lost = on(Operation::Release, deed);
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            lost.over().await;
            assert_eq!(direct.inspect(&name).await.unwrap(), None, "the release left something");

            let held = direct.lock(&name).ttl(Duration::from_secs(300)).acquire().await.unwrap();
            let lost = on(Operation::Withdraw, deed);
            match request().wait(Duration::from_millis(20)).try_acquire().await {
                Ok(guard) => assert!(guard.is_none(), "it is held"),
                // The repeated withdrawal may take longer than the caller is kept waiting for it.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}"),
            }
            lost.over().await;
            let alone = || async { direct.inspect(&name).await.unwrap()?.waiters.is_empty().then_some(()) };
            eventually("the withdrawal is repeated", alone).await;
            assert_eq!(held.release().await.unwrap(), Release::Released);
        }
    }
    println!("{} replies and requests of each operation were lost: nothing was left behind", 2 * rounds);
}

/// An acquire whose reply was lost is `Indeterminate` and leaves nothing, or it was asked for again and is one grant.
async fn known_or_nothing(direct: &Locks, name: &str, acquired: Result<Option<Guard>>) {
    match acquired {
        Ok(guard) => {
            let guard = guard.expect("it is free");
            let state = direct.inspect(name).await.unwrap().expect("it is held");
            assert_eq!((state.holders.len(), state.waiters.len()), (1, 0));
            assert_eq!(state.holders[0].token, Some(guard.token()));
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate),
    }
    let idle = || async { direct.inspect(name).await.unwrap().is_none().then_some(()) };
    eventually("it left nothing", idle).await;
}
