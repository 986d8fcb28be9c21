//! The engines there are, how each is started, and who takes part on it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::ValueEnum;
use tollgate_bench::{Contender, Entry, Failure, Ours, PlainFile};
use tollgate_testkit::engines::{self, Config, Engine};

use crate::booth::Booth;
use crate::peers::{
    Advisory, EtcdLock, GetLock, MariaRowLock, PlainAdvisory, RowLock, Rslock, ZooKeeperLock,
};

/// Something to take locks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// One Redis, in memory.
    Redis,
    /// One Redis that brings every change to the disk before it answers.
    RedisDurable,
    /// Three independent Redises.
    Redlock,
    /// Five independent Redises.
    Redlock5,
    /// One node of etcd.
    Etcd,
    /// Three nodes of etcd.
    Etcd3,
    /// One node of ZooKeeper.
    Zookeeper,
    /// Three nodes of ZooKeeper.
    Zookeeper3,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
    /// A folder on the disk.
    File,
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no engine is hidden");
        f.write_str(value.get_name())
    }
}

/// Everybody on one engine.
type Contenders = Vec<Arc<dyn Contender>>;

/// A started engine. Dropping it ends it.
pub(crate) struct Site {
    name: EngineName,
    engines: Vec<Engine>,
    folder: tempfile::TempDir,
}

impl EngineName {
    /// Starts it, and returns when it serves clients.
    pub(crate) fn start(self) -> Result<Site, Failure> {
        let configs = match self {
            Self::Redis => vec![Config::redis()],
            Self::RedisDurable => vec![Config::durable_redis()],
            Self::Redlock => vec![Config::redis(); 3],
            Self::Redlock5 => vec![Config::redis(); 5],
            Self::Etcd => vec![patient_etcd()],
            Self::Etcd3 => vec![patient_etcd().nodes(3)],
            Self::Zookeeper => vec![patient_zookeeper()],
            Self::Zookeeper3 => vec![patient_zookeeper().nodes(3)],
            // A crowd of a thousand has a connection each, twice: those of the round before are still closing.
            Self::Postgres => {
                let crowded = Config::postgres().argument("-c").argument("max_connections=2400");
                // Or those who wait for a lock would not notice that their client is gone.
                vec![crowded.argument("-c").argument("client_connection_check_interval=1s")]
            }
            Self::Mariadb => vec![Config::mariadb().argument("--max-connections=300")],
            Self::File => Vec::new(),
        };
        let started: Result<Vec<Engine>, _> = configs.iter().map(engines::private).collect();
        let engines = started.map_err(|trouble| trouble.to_string())?;
        Ok(Site { name: self, engines, folder: tempfile::tempdir()? })
    }

    /// How Tollgate calls it.
    fn url(self, addresses: &[SocketAddr], site: &Site) -> String {
        let hosts = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Redis | Self::RedisDurable => format!("redis://{hosts}"),
            Self::Redlock | Self::Redlock5 => format!("redlock://{hosts}"),
            Self::Etcd | Self::Etcd3 => format!("etcd://{hosts}"),
            Self::Zookeeper | Self::Zookeeper3 => format!("zookeeper://{hosts}"),
            Self::Postgres => format!("postgres://postgres@{hosts}/postgres"),
            Self::Mariadb => format!("mariadb://root@{hosts}/test"),
            Self::File => format!("file:{}", site.folder.path().join("locks").display()),
        }
    }

    /// Tollgate on it, in each way that is to be compared.
    fn ours(self, url: &str) -> Contenders {
        let session = match self {
            Self::Postgres => "advisory",
            Self::Mariadb => "session",
            _ => return vec![Arc::new(Ours::new(url))],
        };
        let connections = |number: usize| Ours::new(&format!("{url}?connections={number}"));
        let session_url = format!("{url}?style={session}");
        vec![
            // One for each client, as the others have.
            Arc::new(connections(1)),
            Arc::new(connections(4).shared().named("tollgate, 4 connections for all")),
            Arc::new(connections(16).shared().named("tollgate, 16 connections for all")),
            Arc::new(Ours::new(&session_url).one_lock_each().named(&format!("tollgate, {session} style"))),
        ]
    }

    /// What its users use today, on the nodes at `addresses`.
    fn peers(self, addresses: &[SocketAddr], site: &Site) -> Result<Contenders, Failure> {
        Ok(match self {
            Self::Redis | Self::RedisDurable | Self::Redlock | Self::Redlock5 => {
                vec![Arc::new(Rslock::patient(addresses)), Arc::new(Rslock::eager(addresses))]
            }
            Self::Etcd | Self::Etcd3 => vec![Arc::new(EtcdLock::new(addresses))],
            Self::Zookeeper | Self::Zookeeper3 => vec![Arc::new(ZooKeeperLock::new(addresses))],
            Self::Postgres => {
                let address = addresses[0];
                vec![
                    Arc::new(RowLock::new(address)),
                    Arc::new(Advisory::new(address)),
                    Arc::new(PlainAdvisory::new(address)),
                ]
            }
            Self::Mariadb => {
                vec![Arc::new(MariaRowLock::new(addresses[0])), Arc::new(GetLock::new(addresses[0]))]
            }
            Self::File => vec![Arc::new(PlainFile::new(&site.folder.path().join("plain"))?)],
        })
    }
}

/// With the intervals it has by itself: tests hurry its elections, which a busy machine loses.
fn patient_etcd() -> Config {
    Config::etcd().argument("--heartbeat-interval=100").argument("--election-timeout=1000")
}

/// With the tick of its sample configuration.
fn patient_zookeeper() -> Config {
    Config::zookeeper().argument("tickTime=2000").long_lived()
}

impl Site {
    /// Everybody who takes part, Tollgate first, and what a reader has to know of it.
    pub(crate) fn entries(&self) -> Result<(Vec<Entry>, Vec<String>), Failure> {
        let nodes = self.engines.iter().flat_map(Engine::nodes);
        let addresses: Vec<SocketAddr> = nodes.map(|node| node.address()).collect();
        let (contenders, notes) = self.contenders(&addresses)?;
        if addresses.is_empty() {
            return Ok((contenders.into_iter().map(Entry::from).collect(), notes));
        }
        let booth = Arc::new(Booth::before(self.name, &addresses));
        let (twins, _) = self.contenders(&booth.addresses())?;
        let entries = contenders.into_iter().zip(twins);
        Ok((entries.map(|(own, twin)| Entry::new(own).counted(twin, booth.clone())).collect(), notes))
    }

    fn contenders(&self, addresses: &[SocketAddr]) -> Result<(Contenders, Vec<String>), Failure> {
        let (mut contenders, mut notes) = (Contenders::new(), Vec::new());
        let url = self.name.url(addresses, self);
        if matches!(self.name, EngineName::Redlock | EngineName::Redlock5) {
            // They were started here and have nothing to remember. The second time they are ready already.
            tollgate::blocking::redlock_init(&url)?;
        }
        match tollgate::blocking::connect(&url) {
            Ok(locks) => {
                locks.close();
                contenders.extend(self.name.ours(&url));
            }
            Err(error) if error.kind() == tollgate::ErrorKind::InvalidArgument => {
                notes.push(format!("Tollgate does not take part: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
        contenders.extend(self.name.peers(addresses, self)?);
        Ok((contenders, notes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    const CLIENTS: usize = 3;
    const PASSAGES: u64 = 5;

    /// Who is in, and how often somebody was.
    #[derive(Default)]
    struct Room {
        taken: AtomicBool,
        passages: AtomicU64,
    }

    /// Clients with two tasks each, where one connection can have several locks, pass one by one.
    async fn pass_one_by_one(contender: Arc<dyn Contender>) {
        let room = Arc::new(Room::default());
        let tasks_each = if contender.holds_many() { 2 } else { 1 };
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let client = contender.client().await.unwrap();
            for _ in 0..tasks_each {
                let (client, room) = (client.clone(), room.clone());
                tasks.spawn(async move {
                    for _ in 0..PASSAGES {
                        let held = client.lock("one/by/one").await.unwrap();
                        assert!(!room.taken.swap(true, Ordering::SeqCst), "two are in at once");
                        tokio::task::yield_now().await;
                        room.passages.fetch_add(1, Ordering::SeqCst);
                        room.taken.store(false, Ordering::SeqCst);
                        held.unlock().await.unwrap();
                    }
                });
            }
        }
        while let Some(passed) = tasks.join_next().await {
            passed.unwrap_or_else(|panic| panic!("{}: {panic}", contender.name()));
        }
        let expected = (CLIENTS * tasks_each) as u64 * PASSAGES;
        assert_eq!(room.passages.load(Ordering::SeqCst), expected, "{}", contender.name());
    }

    fn everybody_passes_one_by_one(engine: EngineName) {
        let site = engine.start().unwrap();
        let nodes = site.engines.iter().flat_map(Engine::nodes);
        let addresses: Vec<SocketAddr> = nodes.map(|node| node.address()).collect();
        let booth = Booth::before(engine, &addresses);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (contenders, _) = site.contenders(&booth.addresses()).unwrap();
        for contender in contenders.into_iter().filter(|contender| contender.can_wait()) {
            let before = tollgate_bench::Meter::traffic(&booth);
            runtime.block_on(pass_one_by_one(contender.clone()));
            let after = tollgate_bench::Meter::traffic(&booth);
            if !addresses.is_empty() {
                let who = contender.name();
                assert!(after.connections - before.connections >= CLIENTS as u64, "{who}: connections");
                let locks = CLIENTS as u64 * PASSAGES;
                assert!(after.requests - before.requests >= 2 * locks, "{who}: {before:?} {after:?}");
                assert!(after.bytes_out > before.bytes_out && after.bytes_back > before.bytes_back, "{who}");
            }
        }
    }

    #[test]
    fn on_redis_everybody_passes_one_by_one_and_is_counted() {
        everybody_passes_one_by_one(EngineName::Redis);
        everybody_passes_one_by_one(EngineName::Redlock);
    }

    #[test]
    fn on_etcd_everybody_passes_one_by_one_and_is_counted() {
        everybody_passes_one_by_one(EngineName::Etcd);
    }

    #[test]
    fn on_zookeeper_everybody_passes_one_by_one_and_is_counted() {
        everybody_passes_one_by_one(EngineName::Zookeeper);
    }

    #[test]
    fn on_postgres_everybody_passes_one_by_one_and_is_counted() {
        everybody_passes_one_by_one(EngineName::Postgres);
    }

    #[test]
    fn on_mariadb_everybody_passes_one_by_one_and_is_counted() {
        everybody_passes_one_by_one(EngineName::Mariadb);
    }

    #[test]
    fn tollgate_takes_part_where_it_has_a_backend() {
        let (contenders, notes) = EngineName::File.start().unwrap().contenders(&[]).unwrap();
        let names: Vec<&str> = contenders.iter().map(|contender| contender.name()).collect();
        assert_eq!((names, notes), (vec!["tollgate", "flock + fdatasync"], Vec::new()));
        everybody_passes_one_by_one(EngineName::File);
    }
}
