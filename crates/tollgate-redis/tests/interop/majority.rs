//! Redlock beside other clients that take a majority of the same servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{Backend, BootClock, Extension, Keeper, Locks, LossCause, Release};
use tollgate_redis::{Initialized, RedlockBackend, RedlockConfig, redlock_init};
use tollgate_testkit::engines::{self, Config, Engine};

use crate::cases::{LONG, ROUNDING, SHORT, refusals, released};
use crate::support::{cli, until};
use crate::worker::{Kind, Worker};
use crate::{block_on, crowd};

/// How often everybody passes. They take parts of the servers from each other, so it takes longer than on one.
const TIMES: usize = 15;

/// Three servers that know nothing of each other.
struct Nodes(Vec<Engine>);

impl Nodes {
    async fn new() -> Self {
        let nodes = Self((0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect());
        let config = RedlockConfig::new(nodes.urls());
        assert_eq!(redlock_init(&config).await.unwrap(), Initialized::Now);
        nodes
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(Engine::address).collect()
    }

    fn urls(&self) -> Vec<String> {
        self.addresses().iter().map(|address| format!("redis://{address}")).collect()
    }

    /// How often the first one was asked by a script.
    fn scripts_run(&self) -> u64 {
        let stats = cli(self.addresses()[0], &["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
    }
}

/// Ours on the servers that `urls` name.
pub(crate) async fn backend(urls: &[String]) -> Arc<RedlockBackend> {
    let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
    Arc::new(RedlockBackend::connect(RedlockConfig::new(urls.to_vec()), clock).await.unwrap())
}

pub(crate) async fn majorities_keep_each_other_out(kind: Kind) {
    let (nodes, folder) = (Nodes::new().await, tempfile::tempdir().unwrap());
    let backend = backend(&nodes.urls()).await;
    let locks = Locks::new(backend.clone()).unwrap();
    let mut foreigner = Worker::start(kind, &nodes.addresses(), "lock:a", folder.path());
    let [refused_extend, refused_release] = refusals(kind);

    // It holds, and releases.
    assert_eq!(foreigner.ask(&format!("try {LONG}")), "granted");
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(locks.lock("a").acquire());
    let before = nodes.scripts_run();
    until("it has asked again", async || nodes.scripts_run() > before + 3).await;
    assert!(!waiting.is_finished(), "ours came in beside it");
    assert_eq!(foreigner.ask("release"), released(kind));
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(foreigner.ask(&format!("try {LONG}")), "busy");
    assert_eq!(guard.release().await.unwrap(), Release::Released);

    // It lets it run out.
    let since = Instant::now();
    assert_eq!(foreigner.ask(&format!("try {}", SHORT.as_millis())), "granted");
    let guard = locks.lock("a").acquire().await.unwrap();
    assert!(since.elapsed() + ROUNDING >= SHORT, "ours was in after {:?}", since.elapsed());
    assert_eq!(foreigner.ask(&format!("extend {LONG}")), refused_extend);
    assert_eq!(foreigner.ask("release"), refused_release);
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "it is still ours");
    assert_eq!(guard.release().await.unwrap(), Release::Released);

    // Ours runs out.
    let guard = locks.lock("a").ttl(SHORT).no_renew().acquire().await.unwrap();
    assert_eq!(foreigner.ask(&format!("acquire {LONG}")), "granted");
    assert!(guard.check().is_err(), "ours thinks that it is in beside it");
    let grant = guard.grant().clone();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::AlreadyLost);
    let extended = backend.extend(&grant, Duration::from_secs(60), None).await.unwrap();
    assert_eq!(extended, Extension::Lost { cause: LossCause::Gone });
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "it is still its");
    assert_eq!(foreigner.ask(&format!("extend {LONG}")), "extended");
    assert_eq!(foreigner.ask("release"), released(kind));
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

pub(crate) fn one_at_a_time_has_a_majority_whoever_it_is() {
    let nodes = block_on(Nodes::new());
    let kinds = [Kind::NodeRedlock, Kind::Rslock, Kind::Tollgate];
    crowd::passes(&kinds, &nodes.addresses(), "lock:crowd", TIMES);
}
