//! What many write themselves on PostgreSQL: a row that is there while the lock is held.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio_postgres::{NoTls, Statement};
use tollgate_bench::{Client, Contender, Failure, Held, Waiting};

use super::{POLL_EVERY, owner, warm_up_name};

/// A row that is inserted and deleted, by two prepared statements that commit on their own.
pub(crate) struct RowLock {
    address: SocketAddr,
    table: OnceCell<()>,
}

impl RowLock {
    /// On the PostgreSQL at `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, table: OnceCell::new() }
    }
}

/// A connection to the PostgreSQL at `address`, driven by a task of its own as the driver wants it.
pub(super) async fn connect(address: SocketAddr) -> Result<tokio_postgres::Client, Failure> {
    let url = format!("postgres://postgres@{address}/postgres");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    // What becomes of it its client hears.
    tokio::spawn(connection);
    Ok(client)
}

impl Contender for RowLock {
    fn name(&self) -> &str {
        "INSERT, DELETE (10 ms)"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let connection = connect(self.address).await?;
            let create = "CREATE TABLE IF NOT EXISTS row_locks (name text PRIMARY KEY, owner bigint)";
            self.table.get_or_try_init(|| connection.batch_execute(create)).await?;
            let insert = "INSERT INTO row_locks (name, owner) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            let insert = connection.prepare(insert).await?;
            let delete = connection.prepare("DELETE FROM row_locks WHERE name = $1 AND owner = $2").await?;
            let client = RowClient(Arc::new(Prepared { connection, insert, delete }));
            client.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(client) as Arc<dyn Client>)
        })
    }
}

struct Prepared {
    connection: tokio_postgres::Client,
    insert: Statement,
    delete: Statement,
}

struct RowClient(Arc<Prepared>);

impl Client for RowClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let Prepared { connection, insert, .. } = &*self.0;
            let owner = owner();
            while connection.execute(insert, &[&name, &owner]).await? == 0 {
                tokio::time::sleep(POLL_EVERY).await;
            }
            Ok(Box::new(Taken { prepared: self.0.clone(), name: name.to_owned(), owner }) as Box<dyn Held>)
        })
    }
}

struct Taken {
    prepared: Arc<Prepared>,
    name: String,
    owner: i64,
}

impl Held for Taken {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            let Prepared { connection, delete, .. } = &*self.prepared;
            if connection.execute(delete, &[&self.name, &self.owner]).await? != 1 {
                return Err(format!("the row of {:?} was not there any more", self.name).into());
            }
            Ok(())
        })
    }
}
