//! A store in memory that can lose its power, and an engine on it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_core::{LockName, Mode, Moment, OnDeadlock, OwnerId, Token};
use tollgate_embedded::durable::{
    Applied, Commit, Durability, Durable, Options, Row, Started, Store, StoreError, Table, Write, start,
};
use tollgate_engine::{Answer, Claim, Command};

/// Values by table and key.
pub(crate) type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// Rows that survive everything.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore {
    pub(crate) rows: Arc<Mutex<Rows>>,
    pub(crate) commits: Arc<Mutex<usize>>,
    /// Whether every commit fails from now on.
    pub(crate) is_broken: Arc<Mutex<bool>>,
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Vec<Row>, StoreError> {
        let rows = self.rows.lock().unwrap();
        let row = |((table, key), value): (&(Table, Vec<u8>), &Vec<u8>)| Row {
            table: *table,
            key: key.clone(),
            value: value.clone(),
        };
        Ok(rows.iter().map(row).collect())
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if *self.is_broken.lock().unwrap() {
            return Err(StoreError::Io { file: self.file().to_owned(), detail: "it is broken".to_owned() });
        }
        let mut rows = self.rows.lock().unwrap();
        for write in writes {
            let key = (write.table, write.key.clone());
            match &write.value {
                Some(value) => drop(rows.insert(key, value.clone())),
                None => drop(rows.remove(&key)),
            }
        }
        *self.commits.lock().unwrap() += 1;
        Ok(())
    }

    fn file(&self) -> &Path {
        Path::new("memory")
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

pub(crate) fn owner(number: u128) -> OwnerId {
    OwnerId::from_bits(number)
}

pub(crate) fn claim(lock: &str, number: u128, ttl: Duration) -> Claim<String> {
    Claim {
        name: name(lock),
        mode: Mode::Exclusive,
        owner: owner(number),
        ttl,
        wait_lease: None,
        lock_delay: Duration::ZERO,
        party: None,
        on_deadlock: OnDeadlock::Timeout,
        details: format!("holder {number}"),
    }
}

pub(crate) fn options(durability: Durability) -> Options {
    Options { durability, token_floor: None, longest: secs(300) }
}

/// An engine with its store and a clock.
pub(crate) struct Server<S: Store> {
    pub(crate) engine: Durable<String>,
    pub(crate) wait: Option<Duration>,
    pub(crate) store: S,
    pub(crate) now: Moment,
}

impl<S: Store> Server<S> {
    pub(crate) fn start(mut store: S, options: &Options) -> Self {
        let Started { engine, wait } = start(&mut store, options).unwrap();
        let now = engine.now();
        Self { engine, wait, store, now }
    }

    pub(crate) fn apply(&mut self, command: Command<String>) -> Applied {
        self.engine.apply(command, self.now)
    }

    pub(crate) fn acquire(&mut self, claim: Claim<String>) -> Applied {
        self.apply(Command::Acquire { claim, wait: true })
    }

    pub(crate) fn release(&mut self, lock: &str, number: u128) -> Applied {
        self.apply(Command::Release { name: name(lock), owner: owner(number) })
    }

    pub(crate) fn extend(&mut self, lock: &str, number: u128, ttl: Duration) -> Applied {
        self.apply(Command::Extend { name: name(lock), owner: owner(number), ttl, details: None })
    }

    pub(crate) fn pass(&mut self, time: Duration) -> Applied {
        self.now = self.now + time;
        self.apply(Command::Tick)
    }

    /// Commits what was gathered; the last commit, if there was any.
    pub(crate) fn commit(&mut self) -> Option<Commit> {
        let mut last = None;
        while let Some(batch) = self.engine.take_batch() {
            self.store.commit(&batch.writes()).unwrap();
            self.engine.committed(batch.commit());
            last = Some(batch.commit());
        }
        last
    }

    /// Tokens of the holders of a lock.
    pub(crate) fn tokens(&self, lock: &str) -> Vec<Token> {
        let view = self.engine.inspect(&name(lock));
        view.map(|view| view.holders.iter().map(|holder| holder.token).collect()).unwrap_or_default()
    }
}

impl Server<MemoryStore> {
    pub(crate) fn new(durability: Durability) -> Self {
        Self::start(MemoryStore::default(), &options(durability))
    }

    /// Loses everything that is not committed, and starts again.
    pub(crate) fn crash(self, durability: Durability) -> Self {
        Self::start(self.store, &options(durability))
    }

    /// Stops as on SIGTERM, and starts again.
    pub(crate) fn stop_and_start(mut self, durability: Durability) -> Self {
        self.engine.stop(self.now);
        self.commit();
        self.crash(durability)
    }
}

pub(crate) fn token(applied: &Applied) -> Token {
    match &applied.answer {
        Answer::Granted(granted) => granted.token,
        other => panic!("not granted: {other:?}"),
    }
}
