//! Which engine, and how it is set up.

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Redis 7.
    Redis,
    /// A sentinel of Redis 7.
    Sentinel,
    /// etcd 3.4, with elections in a fraction of a second.
    Etcd,
    /// ZooKeeper 3.8, with ticks of 200 ms.
    ZooKeeper,
    /// PostgreSQL 15; user postgres, no password.
    Postgres,
    /// MariaDB 10.11; user root, no password, an empty database `test`.
    MariaDb,
    /// PgBouncer before a PostgreSQL; anybody is user postgres, and may administrate it.
    PgBouncer,
}

/// An engine as a test wants it. Tests that want the same can share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    pub(super) kind: Kind,
    pub(super) nodes: usize,
    pub(super) arguments: Vec<String>,
    pub(super) own_clock: bool,
    pub(super) long_lived: bool,
}

impl Config {
    fn new(kind: Kind) -> Self {
        Self { kind, nodes: 1, arguments: Vec::new(), own_clock: false, long_lived: false }
    }

    /// A Redis that keeps its data in memory alone.
    pub fn redis() -> Self {
        Self::new(Kind::Redis).argument("--save").argument("").argument("--appendonly").argument("no")
    }

    /// A Redis that writes every change to the disk before it answers.
    pub fn durable_redis() -> Self {
        let durable = Self::new(Kind::Redis).argument("--save").argument("");
        durable.argument("--appendonly").argument("yes").argument("--appendfsync").argument("always")
    }

    /// A sentinel. What it watches is said by lines of its configuration.
    pub fn sentinel() -> Self {
        Self::new(Kind::Sentinel)
    }

    /// An etcd of one node.
    pub fn etcd() -> Self {
        Self::new(Kind::Etcd)
    }

    /// A ZooKeeper of one node.
    pub fn zookeeper() -> Self {
        Self::new(Kind::ZooKeeper)
    }

    /// Started as one that is to be fast for long, not as one that is soon up: for what measures it.
    #[must_use]
    pub fn long_lived(mut self) -> Self {
        self.long_lived = true;
        self
    }

    /// A PostgreSQL.
    pub fn postgres() -> Self {
        Self::new(Kind::Postgres)
    }

    /// A MariaDB.
    pub fn mariadb() -> Self {
        Self::new(Kind::MariaDb)
    }

    /// A PgBouncer before the PostgreSQL on this port. It lends a connection for a transaction at a time.
    pub fn pgbouncer(postgres: u16) -> Self {
        let database = format!("* = host=127.0.0.1 port={postgres} user=postgres");
        let config = Self::new(Kind::PgBouncer).argument("[databases]").argument(database);
        config.argument("[pgbouncer]").argument("pool_mode = transaction")
    }

    /// So many nodes that elect a leader; etcd and ZooKeeper only.
    pub fn nodes(mut self, nodes: usize) -> Self {
        assert!(
            nodes == 1 || matches!(self.kind, Kind::Etcd | Kind::ZooKeeper),
            "{:?} runs as one node here",
            self.kind
        );
        self.nodes = nodes;
        self
    }

    /// One more argument on its command line (for ZooKeeper, a sentinel and PgBouncer a line of
    /// its configuration).
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// With a wall clock that the test can set. Not etcd and ZooKeeper: they count on the monotonic clock.
    pub fn own_clock(mut self) -> Self {
        assert!(
            !matches!(self.kind, Kind::Etcd | Kind::ZooKeeper),
            "{:?} does not go by the wall clock",
            self.kind
        );
        self.own_clock = true;
        self
    }

    /// What runs.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
