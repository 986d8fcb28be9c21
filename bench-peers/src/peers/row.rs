//! What many write themselves: a row that is there while the lock is held.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::sync::{Mutex, OnceCell};
use tollgate_bench::{Client, Contender, Failure, Held, Waiting};

use super::advisory::connect;
use super::warm_up_name;

/// How long a client waits before it tries again.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// A row that is inserted and deleted, by two statements that commit on their own.
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

impl Contender for RowLock {
    fn name(&self) -> &str {
        "INSERT, DELETE (10 ms)"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let mut connection = connect(self.address).await?;
            self.table.get_or_try_init(|| create_table(&mut connection)).await?;
            let client = RowClient(Arc::new(Mutex::new(connection)));
            client.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(client) as Arc<dyn Client>)
        })
    }
}

async fn create_table(connection: &mut PgConnection) -> Result<(), Failure> {
    let create = "CREATE TABLE IF NOT EXISTS row_locks (name text PRIMARY KEY)";
    sqlx::query(create).execute(connection).await?;
    Ok(())
}

struct RowClient(Arc<Mutex<PgConnection>>);

impl Client for RowClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let insert = "INSERT INTO row_locks (name) VALUES ($1) ON CONFLICT DO NOTHING";
            loop {
                let mut connection = self.0.lock().await;
                let inserted = sqlx::query(insert).bind(name).execute(&mut *connection).await?;
                drop(connection);
                if inserted.rows_affected() == 1 {
                    let connection = self.0.clone();
                    return Ok(Box::new(Taken { connection, name: name.to_owned() }) as Box<dyn Held>);
                }
                tokio::time::sleep(POLL_EVERY).await;
            }
        })
    }
}

struct Taken {
    connection: Arc<Mutex<PgConnection>>,
    name: String,
}

impl Held for Taken {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            let delete = sqlx::query("DELETE FROM row_locks WHERE name = $1").bind(&self.name);
            let deleted = delete.execute(&mut *self.connection.lock().await).await?;
            if deleted.rows_affected() != 1 {
                return Err(format!("the row of {:?} was not there any more", self.name).into());
            }
            Ok(())
        })
    }
}
