//! `pg_advisory_lock`, asked for by hand: the queue that PostgreSQL has by itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_postgres::Statement;
use tollgate_bench::{Client, Contender, Held, Waiting};

use super::row::connect;
use super::warm_up_name;

/// Two prepared statements on a connection for everybody, also for each of a thousand who wait.
pub(crate) struct PlainAdvisory {
    address: SocketAddr,
}

impl PlainAdvisory {
    /// On the PostgreSQL at `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address }
    }
}

impl Contender for PlainAdvisory {
    fn name(&self) -> &str {
        "pg_advisory_lock"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let connection = connect(self.address).await?;
            let lock = connection.prepare("SELECT pg_advisory_lock(hashtextextended($1, 0))").await?;
            let unlock = connection.prepare("SELECT pg_advisory_unlock(hashtextextended($1, 0))").await?;
            let client = AdvisoryClient(Arc::new(Mutex::new(Prepared { connection, lock, unlock })));
            client.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(client) as Arc<dyn Client>)
        })
    }

    fn holds_many(&self) -> bool {
        false
    }

    fn most_connections(&self) -> usize {
        1100
    }

    /// A server process that waits for a lock does not see that its client has gone, and a thousand of them keep
    /// PostgreSQL so busy that nobody gets in.
    fn clear_away(&self) -> Waiting<'_, ()> {
        Box::pin(async move {
            let connection = connect(self.address).await?;
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE query LIKE 'SELECT pg_advisory_%' AND pid <> pg_backend_pid()";
            while connection.query_one(end, &[]).await?.try_get::<_, i64>(0)? > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        })
    }
}

struct Prepared {
    connection: tokio_postgres::Client,
    lock: Statement,
    unlock: Statement,
}

struct AdvisoryClient(Arc<Mutex<Prepared>>);

impl Client for AdvisoryClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let prepared = self.0.clone().lock_owned().await;
            prepared.connection.query_one(&prepared.lock, &[&name]).await?;
            Ok(Box::new(Taken { prepared, name: name.to_owned() }) as Box<dyn Held>)
        })
    }
}

struct Taken {
    prepared: OwnedMutexGuard<Prepared>,
    name: String,
}

impl Held for Taken {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            let row = self.prepared.connection.query_one(&self.prepared.unlock, &[&self.name]).await?;
            if !row.try_get::<_, bool>(0)? {
                return Err(format!("{:?} was not locked any more", self.name).into());
            }
            Ok(())
        })
    }
}
