//! A holder process that is stopped after it read, and goes on to write when its ttl is long over.

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tollgate_core::{ErrorKind, OwnerId, Release, Result, Stale};

use super::{Cast, Engine, Entry, Proof, Resource, long, short};
use crate::process::{self, Process, orders, say};
use crate::subject::PATIENCE;

/// Says to the started program that it is the holder, and what it holds.
const ASKED: &str = "TOLLGATE_PROOF_HOLDER";
/// The numbers of the two writes.
const HOLDER: u64 = 1;
const SUCCESSOR: u64 = 2;

#[derive(Debug, Serialize, Deserialize)]
struct Errand {
    url: String,
    lock: String,
    resource: String,
    place: String,
}

#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Adds one to what was read, behind the fence and without.
    Write,
    Release,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Reply {
    /// It holds the lock, and has read both registers.
    Read { token: u64, fenced: Entry, plain: Entry },
    /// What the fence said, and whether the guard believes that it is held.
    Wrote { fenced: Verdict, believes: bool },
    /// Whether it was still the holder.
    Released(bool),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Verdict {
    Accepted,
    /// Refused in the one way in which everything stale is, with the token that was shown.
    Stale(u64),
    Other(String),
}

impl Verdict {
    fn of(answer: Result<()>) -> Self {
        match answer {
            Ok(()) => Self::Accepted,
            Err(error) => match Stale::of(&error) {
                Some(stale) if error.kind() == ErrorKind::Lost => Self::Stale(stale.token.get()),
                _ => Self::Other(format!("{error:?}")),
            },
        }
    }
}

/// Is the holder, if this program was started as one.
pub(super) fn run_if_asked(cast: &Cast) {
    if let Ok(errand) = std::env::var(ASKED) {
        let errand = serde_json::from_str(&errand).expect("errands are plain");
        process::run(hold(cast, errand));
    }
}

async fn hold(cast: &Cast, errand: Errand) {
    let mut register = cast.resource(&errand.resource).open(&errand.place).await;
    let locks = cast.locks(&errand.url).await;
    let mut orders = orders();
    let request = locks.lock(&errand.lock).ttl(short(&locks));
    let guard = request.acquire().await.expect("the lock is free");
    let proof = Proof::of(&guard).expect("the lock is held");
    let fenced = register.enter(&proof).await.expect("no token was admitted before");
    let plain = register.peek().await;
    say(&Reply::Read { token: guard.token().get(), fenced, plain });
    let mut guard = Some(guard);
    while let Some(order) = orders.recv().await {
        match order {
            Order::Write => {
                let written = register.write(&proof, fenced.next(&proof, HOLDER)).await;
                register.overwrite(plain.next(&proof, HOLDER)).await;
                let believes = guard.as_ref().is_some_and(|guard| guard.check().is_ok());
                say(&Reply::Wrote { fenced: Verdict::of(written), believes });
            }
            Order::Release => {
                let released = guard.take().expect("it is released once").release().await;
                say(&Reply::Released(released.expect("the engine answers") == Release::Released));
            }
        }
    }
}

/// The process, which holds the lock and has read, and what others need to come after it.
struct Scene {
    holder: Process<Order, Reply>,
    token: u64,
    errand: Errand,
}

impl Scene {
    async fn set(engine: Engine, resource: &dyn Resource) -> Self {
        let errand = Errand {
            url: (engine.url)(),
            lock: format!("proof/{}", OwnerId::random().to_hex()),
            resource: resource.name().to_owned(),
            place: resource.found().await,
        };
        let mut holder = Process::start(ASKED, &serde_json::to_string(&errand).expect("errands are plain"));
        let Ok(Reply::Read { token, fenced, plain }) = holder.reply().await else {
            panic!("the holder did not get the lock and read")
        };
        assert_eq!((fenced, plain), Default::default(), "no client wrote before");
        Self { holder, token, errand }
    }

    async fn told(&mut self, order: &Order) -> Reply {
        self.holder.order(order);
        self.holder.reply().await.unwrap_or_else(|line| panic!("the holder said {line}"))
    }
}

/// Another takes over and writes while the holder is stopped. What the holder writes then is refused, and destroys what the other
/// one wrote where nothing refuses it.
pub(super) async fn a_stopped_holder_is_refused(cast: &Cast, engine: Engine, resource: &dyn Resource) {
    let mut scene = Scene::set(engine, resource).await;
    scene.holder.signal(Signal::STOP);
    let locks = cast.locks(&scene.errand.url).await;
    let request = locks.lock(&scene.errand.lock).ttl(long(&locks)).wait(PATIENCE);
    let guard = request.acquire().await.expect("the lock of a stopped holder is lost");
    assert!(guard.token().get() > scene.token);
    let proof = Proof::of(&guard).expect("the lock is held");
    let mut register = resource.open(&scene.errand.place).await;
    let seen = register.enter(&proof).await.expect("no newer token was admitted");
    assert_eq!((seen, register.peek().await), Default::default(), "the holder was stopped before it wrote");
    let mine = seen.next(&proof, SUCCESSOR);
    register.write(&proof, mine).await.expect("no newer token was admitted");
    register.overwrite(mine).await;

    scene.holder.signal(Signal::CONT);
    let late = scene.told(&Order::Write).await;
    assert_eq!(late, Reply::Wrote { fenced: Verdict::Stale(scene.token), believes: false });
    assert_eq!(
        register.enter(&proof).await.expect("no newer token was admitted"),
        mine,
        "a stale write was accepted"
    );
    let plain = register.peek().await;
    let destroyed = Entry { count: 1, token: scene.token, id: HOLDER };
    assert_eq!(plain, destroyed, "without the fence the same run shows nothing");
    register.write(&proof, mine.next(&proof, SUCCESSOR + 1)).await.expect("the successor is still in");
    guard.release().await.expect("the engine answers");
}

/// Nobody else is in while the holder is stopped, so that it may go on where it was.
pub(super) async fn a_stopped_holder_keeps_others_out(cast: &Cast, engine: Engine, resource: &dyn Resource) {
    let mut scene = Scene::set(engine, resource).await;
    scene.holder.signal(Signal::STOP);
    let (locks, others) = (cast.locks(&scene.errand.url).await, cast.locks(&scene.errand.url).await);
    let waits = tokio::spawn(locks.lock(&scene.errand.lock).acquire());
    // The time itself is what nothing must come of.
    tokio::time::sleep(short(&locks).max(Duration::from_secs(1)) * 3).await;
    let entered = others.lock(&scene.errand.lock).try_acquire().await.expect("the engine answers");
    assert!(
        entered.is_none() && !waits.is_finished(),
        "another client was granted the lock beside a stopped holder"
    );

    scene.holder.signal(Signal::CONT);
    let late = scene.told(&Order::Write).await;
    assert_eq!(late, Reply::Wrote { fenced: Verdict::Accepted, believes: true });
    assert_eq!(scene.told(&Order::Release).await, Reply::Released(true));
    let guard = tokio::time::timeout(PATIENCE, waits).await.expect("the next claim is granted");
    let guard = guard.expect("no task panics").expect("the lock is free");
    let proof = Proof::of(&guard).expect("the lock is held");
    let mut register = resource.open(&scene.errand.place).await;
    let written = Entry { count: 1, token: scene.token, id: HOLDER };
    let seen = register.enter(&proof).await.expect("no newer token was admitted");
    assert_eq!((seen, register.peek().await), (written, written), "the holder's write is there");
    guard.release().await.expect("the engine answers");
}
