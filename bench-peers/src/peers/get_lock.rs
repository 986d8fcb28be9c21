//! `GET_LOCK`: a lock that belongs to a connection to MariaDB, by plain queries.

use std::net::SocketAddr;
use std::sync::Arc;

use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tollgate_bench::{Client, Contender, Failure, Held, Waiting};

use super::warm_up_name;

/// `GET_LOCK` and `RELEASE_LOCK` through `sqlx`.
pub(crate) struct GetLock {
    address: SocketAddr,
}

impl GetLock {
    /// On the MariaDB at `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address }
    }
}

impl Contender for GetLock {
    fn name(&self) -> &str {
        "GET_LOCK"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let options = MySqlConnectOptions::new()
                .host(&self.address.ip().to_string())
                .port(self.address.port())
                .username("root")
                .database("test")
                .ssl_mode(MySqlSslMode::Disabled);
            let connection = options.disable_statement_logging().connect().await?;
            let client = GetLockClient(Arc::new(Mutex::new(connection)));
            client.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(client) as Arc<dyn Client>)
        })
    }

    fn holds_many(&self) -> bool {
        false
    }
}

struct GetLockClient(Arc<Mutex<MySqlConnection>>);

impl Client for GetLockClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let mut connection = self.0.clone().lock_owned().await;
            said_yes(&mut connection, "SELECT GET_LOCK(?, 3600)", name).await?;
            Ok(Box::new(Taken { connection, name: name.to_owned() }) as Box<dyn Held>)
        })
    }
}

struct Taken {
    connection: OwnedMutexGuard<MySqlConnection>,
    name: String,
}

impl Held for Taken {
    fn unlock(mut self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move { said_yes(&mut self.connection, "SELECT RELEASE_LOCK(?)", &self.name).await })
    }
}

async fn said_yes(connection: &mut MySqlConnection, query: &'static str, name: &str) -> Result<(), Failure> {
    let answer: Option<i64> = sqlx::query_scalar(query).bind(name).fetch_one(connection).await?;
    match answer {
        Some(1) => Ok(()),
        other => Err(format!("{query} of {name:?} answered {other:?}").into()),
    }
}
