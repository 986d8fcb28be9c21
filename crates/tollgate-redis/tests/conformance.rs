//! Redis under the suite every backend must pass: as it is, with every wake-up discarded, with a disk, behind sentinels, in a
//! cluster, and encrypted.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use support::places;
use tollgate_core::{Backend, BoxFuture, Clock, Keeper, Result};
use tollgate_redis::{RedisBackend, RedisConfig, hash_of};
use tollgate_testkit::engines::{self, Config, Engine, Port};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Deed, Discard, Proxy, Resp};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One Redis for all cases: their names differ.
struct Redis {
    name: &'static str,
    config: Config,
    /// Whether messages of pub/sub never arrive, and the proxies that see to it.
    quiet: Option<Mutex<Vec<Proxy>>>,
}

impl Redis {
    fn subject(name: &'static str, config: Config, quiet: bool) -> Arc<dyn Subject> {
        Arc::new(Self { name, config, quiet: quiet.then(Mutex::default) })
    }
}

impl Subject for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        let engine = engines::shared(&self.config).address();
        match &self.quiet {
            None => engine.to_string(),
            Some(proxies) => {
                let mut proxies = proxies.lock().expect("no case panics here");
                if proxies.is_empty() {
                    let proxy = Proxy::start(engine, Resp);
                    proxy.discard_pushes(Discard::All);
                    proxies.push(proxy);
                }
                proxies[0].address().to_string()
            }
        }
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let config = RedisConfig::from_url(&format!("redis://{address}/"))?;
            Ok(Arc::new(RedisBackend::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let proxy = Proxy::start(address.parse().expect("an address"), Resp);
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::RepeatElsewhere })
    }
}

/// A Redis that is found in another way than by its address.
enum Place {
    /// Without a replica: a sentinel must not fail over where a case makes trouble.
    Watched {
        primary: Engine,
        sentinel: Engine,
    },
    Cluster {
        members: Vec<Engine>,
        _buses: [Port; 3],
    },
    Encrypted {
        folder: tempfile::TempDir,
        port: Port,
        _engine: Engine,
    },
}

impl Place {
    fn watched() -> Self {
        let start = |config| engines::private(&config).unwrap_or_else(|trouble| panic!("{trouble}"));
        let primary = start(Config::redis());
        let monitor = format!("sentinel monitor main 127.0.0.1 {} 1", primary.address().port());
        Self::Watched { primary, sentinel: start(Config::sentinel().argument(monitor)) }
    }

    fn cluster() -> Self {
        // This thread may belong to a runtime.
        let keeper = Keeper::global().expect("a test can start a thread");
        let (members, _buses) = keeper.block_on(places::cluster());
        Self::Cluster { members, _buses }
    }

    fn encrypted() -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder can be made"), engines::spare_port());
        for name in ["server", "client"] {
            places::certificate(folder.path(), name);
        }
        let started = engines::private(&places::encrypted(folder.path(), &port));
        let _engine = started.unwrap_or_else(|trouble| panic!("{trouble}"));
        let set = support::cli(_engine.address(), &["CONFIG", "SET", "requirepass", "s@cret"]);
        assert_eq!(set, "OK");
        Self::Encrypted { folder, port, _engine }
    }

    /// A URL, and the folder with its files if it is encrypted.
    fn address(&self) -> String {
        match self {
            Self::Watched { sentinel, .. } => format!("redis-sentinel://{}/main", sentinel.address()),
            // One is enough to find the others.
            Self::Cluster { members, .. } => format!("redis-cluster://{}", members[0].address()),
            Self::Encrypted { folder, port, .. } => {
                format!("rediss://:s%40cret@{} {}", port.address(), folder.path().display())
            }
        }
    }
}

/// One such place for all cases.
struct Placed {
    name: &'static str,
    start: fn() -> Place,
    started: OnceLock<Place>,
    /// How many proxies the sentinel knows.
    proxies: AtomicUsize,
}

impl Placed {
    fn subject(name: &'static str, start: fn() -> Place) -> Arc<dyn Subject> {
        Arc::new(Self { name, start, started: OnceLock::new(), proxies: AtomicUsize::new(0) })
    }

    fn place(&self) -> &Place {
        self.started.get_or_init(self.start)
    }
}

impl Subject for Placed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        self.place().address()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let (url, folder) = address.split_once(' ').unwrap_or((address, ""));
            let mut config = RedisConfig::from_url(url)?;
            config.tls = config.tls.map(|_| places::client_files(Path::new(folder)));
            Ok(Arc::new(RedisBackend::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, _address: &str) -> Option<Chaos> {
        let Place::Watched { primary, sentinel } = self.place() else { return None };
        // To the sentinel it is another primary.
        let proxy = Proxy::start(primary.address(), Resp);
        let service = format!("proxy-{}", self.proxies.fetch_add(1, Ordering::Relaxed));
        let (sentinel, port) = (sentinel.address(), proxy.address().port().to_string());
        let set = support::cli(sentinel, &["SENTINEL", "MONITOR", &service, "127.0.0.1", &port, "1"]);
        assert_eq!(set, "OK");
        let address = format!("redis-sentinel://{sentinel}/{service}");
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::RepeatElsewhere })
    }

    fn exempt(&self, case: &str) -> Option<&'static str> {
        let on_the_wire = ON_THE_WIRE.contains(&case);
        match self.name {
            "redis+cluster" if on_the_wire => Some("its servers name each other, so no proxy is in between"),
            "redis+tls" if on_the_wire => Some("a proxy cannot read what is encrypted"),
            _ if OF_THE_CORE.contains(&case) => Some("it takes seconds, and the place has no part in it"),
            _ => None,
        }
    }
}

/// Cases in which the core's clock decides, and that were tried on a Redis by itself.
const OF_THE_CORE: &[&str] = &[
    "a_healthy_guard_is_never_in_jeopardy",
    "a_lock_is_given_up_after_max_hold",
    "a_lock_is_given_up_when_the_work_stalls",
    "progress_keeps_the_lock",
    "work_is_cancelled_when_its_lock_is_lost",
];

/// The cases that do something to single requests.
const ON_THE_WIRE: &[&str] = &[
    "an_acquire_that_arrives_after_it_was_given_up_leaves_nothing_behind",
    "a_release_that_arrives_twice_touches_nobody_elses_lock",
    "an_acquire_that_arrives_twice_is_one_grant",
    "an_acquire_that_arrives_again_after_the_release_leaves_nothing_that_lasts",
    "a_connection_cut_in_the_middle_of_an_acquire_leaves_nothing_behind",
    "a_waiter_whose_connection_is_cut_leaves_nothing_behind",
    "a_guard_outlives_its_connection",
    "a_guard_in_a_black_hole_is_lost_by_its_deadline",
    "an_acquire_into_a_black_hole_can_be_given_up",
    "an_engine_that_hangs_is_not_called_busy",
];

/// Whether a request is one of `operation`: its script, or the plain command that takes a free lock.
fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let (script, end): (_, &[u8]) = match operation {
        Operation::TryAcquire | Operation::Acquire if takes(frame) => return true,
        Operation::TryAcquire => ("acquire", b"$1\r\n0\r\n"),
        Operation::Acquire => ("acquire", b"$1\r\n1\r\n"),
        Operation::Withdraw => ("withdraw", b""),
        Operation::Extend => ("extend", b""),
        Operation::Release => ("release", b""),
    };
    contains(frame, hash_of(script).expect("a script of ours").as_bytes()) && frame.ends_with(end)
}

fn takes(frame: &[u8]) -> bool {
    contains(frame, b"\r\nSET\r\n") && contains(frame, b"\r\ntg1 ")
}

fn contains(frame: &[u8], part: &[u8]) -> bool {
    frame.windows(part.len()).any(|bytes| bytes == part)
}

fn main() {
    conformance::main(vec![
        Redis::subject("redis", Config::redis(), false),
        Redis::subject("redis+quiet", Config::redis(), true),
        Redis::subject("redis+aof", Config::durable_redis(), false),
        Placed::subject("redis+sentinel", Place::watched),
        Placed::subject("redis+cluster", Place::cluster),
        Placed::subject("redis+tls", Place::encrypted),
    ])
}
