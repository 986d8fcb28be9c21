//! Independent Redises of one test, and clients of them.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of its own helpers")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{BootClock, Clock, Keeper, Locks, Result};
use tollgate_redis::{Initialized, RedlockBackend, RedlockConfig, redlock_init};
use tollgate_testkit::engines::{self, Config, Data, Engine};

/// How long anything may take that should happen soon.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The longest ttl: so long a node does not vote that may have forgotten something.
pub const MAX_TTL: Duration = Duration::from_secs(1);

/// Some Redises that know nothing of each other.
pub struct Nodes {
    engines: Vec<Engine>,
    pub config: RedlockConfig,
}

impl Nodes {
    /// Three that vote.
    pub async fn three() -> Self {
        Self::ready(3, &Config::redis()).await
    }

    /// So many that vote.
    pub async fn ready(count: usize, config: &Config) -> Self {
        let nodes = Self::new(count, config);
        assert_eq!(redlock_init(&nodes.config).await.unwrap(), Initialized::Now);
        nodes
    }

    /// So many that were never used.
    pub fn new(count: usize, config: &Config) -> Self {
        let engines: Vec<Engine> = (0..count).map(|_| engines::private(config).unwrap()).collect();
        let urls = engines.iter().map(|engine| format!("redis://{}/", engine.address())).collect();
        let config = RedlockConfig { max_ttl: MAX_TTL, ..RedlockConfig::new(urls) };
        Self { engines, config }
    }

    pub fn node(&self, number: usize) -> &Engine {
        &self.engines[number]
    }

    pub fn label(&self, number: usize) -> String {
        self.engines[number].address().to_string()
    }

    pub fn restart(&self, number: usize, data: Data) {
        self.engines[number].restart(data).unwrap();
    }

    /// A client of its own.
    pub async fn backend(&self) -> Result<Arc<RedlockBackend>> {
        Ok(Arc::new(RedlockBackend::connect(self.config.clone(), clock()).await?))
    }

    /// Locks of a client of its own.
    pub async fn locks(&self) -> Locks {
        Locks::new(self.backend().await.unwrap()).unwrap()
    }

    /// Asks one node something, as another client would.
    pub async fn raw<T: redis::FromRedisValue>(&self, number: usize, words: &[&str]) -> T {
        let client = redis::Client::open(self.config.nodes[number].as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query_async(&mut connection).await.unwrap()
    }

    /// What one node has as the value of a lock.
    pub async fn value(&self, number: usize, name: &str) -> Option<String> {
        self.raw(number, &["GET", &format!("lock:{name}")]).await
    }

    /// Whether one node votes in its present run.
    pub async fn votes(&self, number: usize) -> bool {
        let info: String = self.raw(number, &["INFO", "server"]).await;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim().to_owned();
        self.raw::<u64>(number, &["EXISTS", &format!("tollgate:member:{run_id}")]).await == 1
    }

    /// Takes locks with `locks` now and then until a node votes again.
    pub async fn until_it_votes(&self, number: usize, locks: &Locks) {
        let until = Instant::now() + PATIENCE;
        while !self.votes(number).await {
            assert!(Instant::now() < until, "node {number} never voted again");
            if let Ok(Some(guard)) = locks.lock("somebody uses them").ttl(MAX_TTL).try_acquire().await {
                let _ = guard.release().await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

pub fn clock() -> Arc<dyn Clock> {
    Arc::new(BootClock::new(Keeper::global().unwrap()))
}

/// Waits until something is so.
pub async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let until = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < until, "it never happened that {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
