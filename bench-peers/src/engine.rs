//! The engines there are, how each is started, and who takes part on it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::ValueEnum;
use tollgate_bench::{Contender, Entry, Failure, Ours, PlainFile};
use tollgate_testkit::engines::{self, Config, Engine};

use crate::booth::Booth;
use crate::peers::{Advisory, EtcdLock, GetLock, RowLock, Rslock, ZooKeeperLock};

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
            // A crowd of a hundred has a connection each, twice: those of the round before are still closing.
            Self::Postgres => vec![Config::postgres().argument("-c").argument("max_connections=300")],
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

    /// What its users use today, on the nodes at `addresses`.
    fn peers(self, addresses: &[SocketAddr], site: &Site) -> Result<Vec<Arc<dyn Contender>>, Failure> {
        Ok(match self {
            Self::Redis | Self::RedisDurable | Self::Redlock | Self::Redlock5 => {
                vec![Arc::new(Rslock::patient(addresses)), Arc::new(Rslock::eager(addresses))]
            }
            Self::Etcd | Self::Etcd3 => vec![Arc::new(EtcdLock::new(addresses))],
            Self::Zookeeper | Self::Zookeeper3 => vec![Arc::new(ZooKeeperLock::new(addresses))],
            Self::Postgres => {
                vec![Arc::new(Advisory::new(addresses[0])), Arc::new(RowLock::new(addresses[0]))]
            }
            Self::Mariadb => vec![Arc::new(GetLock::new(addresses[0]))],
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
    Config::zookeeper().argument("tickTime=2000")
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

    fn contenders(
        &self,
        addresses: &[SocketAddr],
    ) -> Result<(Vec<Arc<dyn Contender>>, Vec<String>), Failure> {
        let (mut contenders, mut notes) = (Vec::<Arc<dyn Contender>>::new(), Vec::new());
        let url = self.name.url(addresses, self);
        match tollgate::blocking::connect(&url) {
            Ok(locks) => {
                locks.close();
                contenders.push(Arc::new(Ours::new(&url)));
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
