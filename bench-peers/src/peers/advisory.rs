//! `sqlx::PgAdvisoryLock`: a lock that belongs to a connection to PostgreSQL.

use std::net::SocketAddr;
use std::sync::Arc;

use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tollgate_bench::{Client, Contender, Failure, Held, Waiting};

use super::warm_up_name;

/// `sqlx`'s advisory lock. A pool would ask its connection whether it is still there before each use; here
/// everybody has one of its own.
pub(crate) struct Advisory {
    address: SocketAddr,
}

impl Advisory {
    /// On the PostgreSQL at `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address }
    }
}

/// A connection to the PostgreSQL at `address`.
async fn connect(address: SocketAddr) -> Result<PgConnection, Failure> {
    let options = PgConnectOptions::new_without_pgpass()
        .host(&address.ip().to_string())
        .port(address.port())
        .username("postgres")
        .database("postgres")
        .ssl_mode(PgSslMode::Disable);
    let mut connection = options.disable_statement_logging().connect().await?;
    connection.ping().await?;
    Ok(connection)
}

impl Contender for Advisory {
    fn name(&self) -> &str {
        "sqlx PgAdvisoryLock"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let client = AdvisoryClient(Arc::new(Mutex::new(connect(self.address).await?)));
            client.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(client) as Arc<dyn Client>)
        })
    }

    fn holds_many(&self) -> bool {
        false
    }
}

struct AdvisoryClient(Arc<Mutex<PgConnection>>);

/// The connection, for as long as a lock is held on it.
struct Own(OwnedMutexGuard<PgConnection>);

impl AsMut<PgConnection> for Own {
    fn as_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

impl Client for AdvisoryClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let connection = Own(self.0.clone().lock_owned().await);
            Ok(Box::new(Taken(PgAdvisoryLock::new(name).acquire(connection).await?)) as Box<dyn Held>)
        })
    }
}

struct Taken(PgAdvisoryLockGuard<Own>);

impl Held for Taken {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            self.0.release_now().await?;
            Ok(())
        })
    }
}
