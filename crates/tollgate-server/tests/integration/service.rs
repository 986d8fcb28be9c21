//! The service on a real file: it grants, stores, stops and starts again.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::{Details, LockName, Mode, OnDeadlock, OwnerId};
use tollgate_embedded::durable::{Durability, Options, RedbStore, Row, Store, StoreError, Write};
use tollgate_server::table::{Acquire, Answer, Granted, Key, Request};
use tollgate_server::{Stopped, TableService};

const SYNC: Durability = Durability::Sync;
const GRACE: Durability = Durability::Grace;

fn key(lock: &str, owner: u128) -> Key {
    Key { name: LockName::new(lock).unwrap(), owner: OwnerId::from_bits(owner) }
}

fn acquire(lock: &str, owner: u128, ttl: Duration) -> Request {
    Request::Acquire(Acquire {
        key: key(lock, owner),
        mode: Mode::Exclusive,
        ttl,
        wait: Duration::from_secs(20),
        round: Duration::from_secs(20),
        can_return: true,
        is_part: false,
        hears_of_queue: false,
        lock_delay: Duration::ZERO,
        party: None,
        on_deadlock: OnDeadlock::Timeout,
        details: Arc::new(Details::default()),
    })
}

fn options(durability: Durability) -> Options {
    Options { durability, token_floor: None, longest: Duration::from_secs(300) }
}

const TTL: Duration = Duration::from_secs(30);

fn granted(answer: Result<Answer, Stopped>) -> Granted {
    match answer.unwrap() {
        Answer::Granted(granted) => granted,
        other => panic!("not granted: {other:?}"),
    }
}

/// Runs `work` with a service on `store`, stops it, and answers how it ended.
fn serve<W: Future<Output = ()>>(
    store: impl Store,
    durability: Durability,
    work: impl FnOnce(TableService) -> W,
) -> Result<(), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (service, running) = TableService::open(store, &options(durability))?;
        let work = async {
            work(service.clone()).await;
            service.stop();
        };
        let (ended, ()) = tokio::join!(running.run(), work);
        ended
    })
}

fn open(file: &Path) -> RedbStore {
    RedbStore::open(file).unwrap()
}

#[test]
fn a_holder_keeps_its_lock_through_a_restart() {
    for durability in [SYNC, GRACE] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.redb");
        let mut token = None;
        serve(open(&file), durability, async |service| {
            token = Some(granted(service.ask(acquire("a", 1, TTL)).await).token);
        })
        .unwrap();
        serve(open(&file), durability, async |service| {
            let extended = service.ask(Request::Extend { key: key("a", 1), ttl: TTL, details: None }).await;
            assert_eq!(Some(granted(extended).token), token);
            let busy = service.ask(Request::Acquire(match acquire("a", 2, TTL) {
                Request::Acquire(acquire) => Acquire { wait: Duration::ZERO, ..acquire },
                _ => unreachable!(),
            }));
            assert!(matches!(busy.await, Ok(Answer::Busy { .. })));
            assert!(Some(granted(service.ask(acquire("b", 3, TTL)).await).token) > token);
        })
        .unwrap();
    }
}

#[test]
fn a_lock_is_handed_over_by_a_release_and_by_the_end_of_a_lease() {
    let folder = tempfile::tempdir().unwrap();
    serve(open(&folder.path().join("locks.redb")), SYNC, async |service| {
        let first = granted(service.ask(acquire("a", 1, TTL)).await).token;
        let (next, _) = tokio::join!(service.ask(acquire("a", 2, Duration::from_millis(300))), async {
            service.ask(Request::Release(key("a", 1))).await
        });
        let second = granted(next).token;
        let third = granted(service.ask(acquire("a", 3, TTL)).await).token;
        assert!(first < second && second < third);
    })
    .unwrap();
}

#[test]
fn a_client_that_is_gone_loses_its_place() {
    let folder = tempfile::tempdir().unwrap();
    serve(open(&folder.path().join("locks.redb")), SYNC, async |service| {
        granted(service.ask(acquire("a", 1, TTL)).await);
        let given_up = tokio::time::timeout(
            Duration::from_millis(50),
            service.ask(acquire("a", 2, Duration::from_millis(200))),
        );
        assert!(given_up.await.is_err());
        let name = key("a", 1).name;
        let waiters = || service.look(|table, _| table.inspect(&name).map_or(0, |view| view.waiters.len()));
        assert_eq!(waiters(), 1);
        let started = Instant::now();
        while waiters() > 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "its place is kept for ever");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .unwrap();
}

#[test]
fn after_a_crash_grace_grants_nothing_until_its_wait_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.redb");
    let ttl = Duration::from_secs(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held_since = runtime.block_on(async {
        let (service, running) = TableService::open(open(&file), &options(GRACE)).unwrap();
        // The loop is dropped instead of stopped.
        tokio::select! {
            _ = running.run() => unreachable!("nobody stops it"),
            answer = service.ask(acquire("a", 1, ttl)) => drop(granted(answer)),
        }
        Instant::now()
    });
    serve(open(&file), GRACE, async |service| {
        assert!(service.wait().is_some());
        assert_eq!(service.ask(acquire("a", 2, ttl)).await, Ok(Answer::NotGranting));
        let mut owner = 3;
        while service.ask(acquire("a", owner, ttl)).await == Ok(Answer::NotGranting) {
            owner += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(held_since.elapsed() >= ttl, "the next holder is in while the first may still hold");
        assert_eq!(service.wait(), None);
    })
    .unwrap();
}

/// A disk that fails when it is told to, and takes its time.
struct BadDisk {
    file: RedbStore,
    is_broken: Arc<AtomicBool>,
    takes: Duration,
}

impl Store for BadDisk {
    fn load(&mut self) -> Result<Vec<Row>, StoreError> {
        self.file.load()
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        std::thread::sleep(self.takes);
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(StoreError::Io { file: self.file().to_owned(), detail: "no space left".to_owned() });
        }
        self.file.commit(writes)
    }

    fn file(&self) -> &Path {
        self.file.file()
    }
}

#[test]
fn a_disk_that_fails_ends_the_service_and_answers_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let is_broken = Arc::new(AtomicBool::new(false));
    let store = BadDisk {
        file: open(&folder.path().join("locks.redb")),
        is_broken: is_broken.clone(),
        takes: Duration::ZERO,
    };
    let ended = serve(store, SYNC, async |service| {
        granted(service.ask(acquire("a", 1, TTL)).await);
        is_broken.store(true, Ordering::SeqCst);
        assert_eq!(service.ask(acquire("b", 2, TTL)).await, Err(Stopped));
        is_broken.store(false, Ordering::SeqCst);
        assert_eq!(service.ask(acquire("c", 3, TTL)).await, Err(Stopped), "a failed commit is final");
    });
    assert!(matches!(ended, Err(StoreError::Io { .. })), "{ended:?}");
}

#[test]
fn a_slow_disk_costs_nobody_a_lease() {
    let folder = tempfile::tempdir().unwrap();
    let store = BadDisk {
        file: open(&folder.path().join("locks.redb")),
        is_broken: Arc::default(),
        takes: Duration::from_secs(3),
    };
    serve(store, SYNC, async |service| {
        let ttl = Duration::from_secs(10);
        granted(service.ask(acquire("a", 1, ttl)).await);
        // Something is always being written.
        let others = Rc::new(service.clone());
        let busy = tokio::task::LocalSet::new();
        busy.spawn_local(async move {
            for owner in 10..12 {
                let _ = others.ask(acquire(&format!("other {owner}"), owner, TTL)).await;
            }
        });
        let renewals = async {
            for _ in 0..20 {
                let asked = Instant::now();
                let extended = service.ask(Request::Extend {
                    key: key("a", 1),
                    ttl: Duration::from_secs(2),
                    details: None,
                });
                granted(extended.await);
                assert!(asked.elapsed() < Duration::from_secs(1), "a renewal waits for the disk");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::join!(busy, renewals);
    })
    .unwrap();
}
