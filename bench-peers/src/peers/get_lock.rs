//! `GET_LOCK`: a lock that belongs to a connection to MariaDB.

use std::net::SocketAddr;
use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Statement};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tollgate_bench::{Client, Contender, Failure, Held, Waiting};

use super::maria::connect;
use super::warm_up_name;

/// `GET_LOCK` and `RELEASE_LOCK`, prepared.
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
            let mut connection = connect(self.address).await?;
            let get = connection.prep("SELECT GET_LOCK(?, 3600)").await?;
            let release = connection.prep("SELECT RELEASE_LOCK(?)").await?;
            let client = GetLockClient(Arc::new(Mutex::new(Prepared { connection, get, release })));
            client.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(client) as Arc<dyn Client>)
        })
    }

    fn holds_many(&self) -> bool {
        false
    }
}

struct Prepared {
    connection: Conn,
    get: Statement,
    release: Statement,
}

struct GetLockClient(Arc<Mutex<Prepared>>);

impl Client for GetLockClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let mut prepared = self.0.clone().lock_owned().await;
            let Prepared { connection, get, .. } = &mut *prepared;
            said_yes(connection, get, name).await?;
            Ok(Box::new(Taken { prepared, name: name.to_owned() }) as Box<dyn Held>)
        })
    }
}

struct Taken {
    prepared: OwnedMutexGuard<Prepared>,
    name: String,
}

impl Held for Taken {
    fn unlock(mut self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            let Prepared { connection, release, .. } = &mut *self.prepared;
            said_yes(connection, release, &self.name).await
        })
    }
}

async fn said_yes(connection: &mut Conn, statement: &Statement, name: &str) -> Result<(), Failure> {
    let answer: Option<Option<i64>> = connection.exec_first(statement, (name,)).await?;
    match answer.flatten() {
        Some(1) => Ok(()),
        other => Err(format!("{name:?} was answered by {other:?}").into()),
    }
}
