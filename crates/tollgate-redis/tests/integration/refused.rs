//! Those who wait outlast a Redis that refuses for a while what it did before, whatever it refuses with.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::{backend, cli, locks, refusals, until};
use tollgate_core::{ErrorKind, Guard, Locks, Release, Result};
use tollgate_testkit::engines::{self, Config, Data, Engine};

type Waiting = tokio::task::JoinHandle<Result<Guard>>;

/// A lock that somebody has, and somebody who waits for it, of two clients.
struct Queue {
    held: Guard,
    waiting: Waiting,
}

impl Queue {
    async fn on(url: &str) -> Self {
        let (ours, theirs) = (locks(url).await.unwrap(), locks(url).await.unwrap());
        let held = ours.lock("a").ttl(Duration::from_secs(60)).no_renew().acquire().await.unwrap();
        let waiting = tokio::spawn(theirs.lock("a").ttl(Duration::from_secs(3)).acquire());
        until("one waits", async || waiters(&ours).await == 1).await;
        Self { held, waiting }
    }

    /// Nobody gives up for a while.
    async fn goes_on(&self) {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(1) {
            assert!(!self.waiting.is_finished(), "it gave up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The lock goes from one to the other.
    async fn ends_well(self) {
        let token = self.held.token();
        assert_eq!(self.held.release().await.unwrap(), Release::Released);
        let next = tokio::time::timeout(Duration::from_secs(30), self.waiting).await.expect("it is in");
        assert!(next.unwrap().unwrap().token() > token);
    }
}

async fn waiters(locks: &Locks) -> usize {
    locks.inspect("a").await.unwrap().map_or(0, |state| state.waiters.len())
}

fn set(address: SocketAddr, words: &[&str]) {
    assert_eq!(cli(address, words), "OK", "{words:?}");
}

fn plain(engine: &Engine) -> String {
    format!("redis://{}/", engine.address())
}

/// A waiter is refused with `code` after `refuse`, and gets its lock after `mend`.
async fn outlasts(url: &str, at: SocketAddr, code: &str, refuse: &[&[&str]], mend: &[&[&str]]) {
    let queue = Queue::on(url).await;
    let before = refusals(at, code);
    refuse.iter().for_each(|words| set(at, words));
    until(code, async || refusals(at, code) >= before + 2 || queue.waiting.is_finished()).await;
    queue.goes_on().await;
    mend.iter().for_each(|words| set(at, words));
    queue.ends_well().await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_primary_that_is_a_replica_for_a_while() {
    let (engine, nobody) = (engines::private(&Config::redis()).unwrap(), engines::spare_port());
    let port = nobody.number().to_string();
    let replica: &[&[&str]] = &[&["REPLICAOF", "127.0.0.1", &port]];
    outlasts(&plain(&engine), engine.address(), "READONLY", replica, &[&["REPLICAOF", "NO", "ONE"]]).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_replica_that_says_nothing_without_its_primary() {
    let (engine, nobody) = (engines::private(&Config::redis()).unwrap(), engines::spare_port());
    let port = nobody.number().to_string();
    let silent: &[&[&str]] =
        &[&["CONFIG", "SET", "replica-serve-stale-data", "no"], &["REPLICAOF", "127.0.0.1", &port]];
    outlasts(&plain(&engine), engine.address(), "MASTERDOWN", silent, &[&["REPLICAOF", "NO", "ONE"]]).await;
    // Whoever comes to such a one for the first time has the wrong address.
    silent.iter().for_each(|words| set(engine.address(), words));
    let error = backend(&plain(&engine)).await.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("replica"), "{error}");
}

#[tokio::test]
async fn a_client_that_wrote_to_a_primary_calls_what_follows_a_fail_over() {
    let (engine, nobody) = (engines::private(&Config::redis()).unwrap(), engines::spare_port());
    let ours = locks(&plain(&engine)).await.unwrap();
    let stranger = locks(&plain(&engine)).await.unwrap();
    ours.lock("a").acquire().await.unwrap().release().await.unwrap();
    set(engine.address(), &["REPLICAOF", "127.0.0.1", &nobody.number().to_string()]);
    for (locks, kind) in [(&ours, ErrorKind::Unavailable), (&stranger, ErrorKind::Config)] {
        // Twice: the connection is another one then.
        for _ in 0..2 {
            let error = locks.lock("b").acquire().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("connect to the primary"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_waiter_outlasts_a_redis_without_its_replicas() {
    let engine = engines::private(&Config::redis()).unwrap();
    let wants = |replicas| ["CONFIG", "SET", "min-replicas-to-write", replicas];
    outlasts(&plain(&engine), engine.address(), "NOREPLICAS", &[&wants("1")], &[&wants("0")]).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_redis_without_memory() {
    let engine = engines::private(&Config::redis()).unwrap();
    let most = |bytes| ["CONFIG", "SET", "maxmemory", bytes];
    outlasts(&plain(&engine), engine.address(), "OOM", &[&most("1")], &[&most("0")]).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_redis_that_cannot_write_to_its_disk() {
    let engine = engines::private(&Config::redis()).unwrap();
    let address = engine.address();
    let queue = Queue::on(&plain(&engine)).await;
    set(address, &["CONFIG", "SET", "save", "3600 1"]);
    // A folder that is gone takes no snapshot.
    std::fs::remove_dir_all(engine.folder().join("node-1").join("data")).unwrap();
    cli(address, &["BGSAVE"]);
    until("MISCONF", async || refusals(address, "MISCONF") >= 2 || queue.waiting.is_finished()).await;
    queue.goes_on().await;
    set(address, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    queue.ends_well().await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_cluster_that_lacks_a_slot() {
    let bus = engines::spare_port();
    let config = Config::redis().argument("--cluster-enabled").argument("yes").argument("--cluster-port");
    let config = config.argument(bus.number().to_string());
    let engine = engines::private(&config.argument("--cluster-node-timeout").argument("1000")).unwrap();
    let address = engine.address();
    set(address, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    until("it stands", async || cli(address, &["CLUSTER", "INFO"]).contains("cluster_state:ok")).await;
    let (url, slot) = (format!("redis-cluster://{address}"), "7");
    assert_ne!(cli(address, &["CLUSTER", "KEYSLOT", "lock:a"]), slot, "it is another one");
    let lack: &[&[&str]] = &[&["CLUSTER", "DELSLOTS", slot]];
    outlasts(&url, address, "CLUSTERDOWN", lack, &[&["CLUSTER", "ADDSLOTS", slot]]).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_redis_that_loads_its_data() {
    let config = Config::redis().argument("--key-load-delay").argument("10000");
    let config = config.argument("--loading-process-events-interval-bytes").argument("1024");
    let engine = engines::private(&config).unwrap();
    let address = engine.address();
    let queue = Queue::on(&plain(&engine)).await;
    // Whenever it has loaded a kilobyte, which is one of these, it has a word for its clients.
    let fill = "for i = 1, 400 do redis.call('SET', 'k' .. i, string.rep(tostring(i), 700)) end return 'OK'";
    set(address, &["CONFIG", "SET", "rdbcompression", "no"]);
    set(address, &["EVAL", fill, "0"]);
    set(address, &["SAVE"]);
    engine.kill();
    let starting = std::thread::spawn(move || {
        engine.restart(Data::Kept).unwrap();
        engine
    });
    until("it loads", async || cli(address, &["INFO", "persistence"]).contains("loading:1")).await;
    queue.goes_on().await;
    let engine = starting.join().unwrap();
    queue.ends_well().await;
    drop(engine);
}
