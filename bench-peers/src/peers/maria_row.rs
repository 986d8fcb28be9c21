//! What many write themselves on MariaDB: a row that is there while the lock is held.

use std::net::SocketAddr;
use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Statement};
use tokio::sync::{Mutex, OnceCell};
use tollgate_bench::{Client, Contender, Held, Waiting};

use super::maria::connect;
use super::{POLL_EVERY, owner, warm_up_name};

/// A row that is inserted and deleted, by two prepared statements that commit on their own.
pub(crate) struct MariaRowLock {
    address: SocketAddr,
    table: OnceCell<()>,
}

impl MariaRowLock {
    /// On the MariaDB at `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, table: OnceCell::new() }
    }
}

impl Contender for MariaRowLock {
    fn name(&self) -> &str {
        "INSERT, DELETE (10 ms)"
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        Box::pin(async move {
            let mut connection = connect(self.address).await?;
            let create = "CREATE TABLE IF NOT EXISTS row_locks (name varchar(200) PRIMARY KEY, owner bigint)";
            self.table.get_or_try_init(|| connection.query_drop(create)).await?;
            let insert = connection.prep("INSERT IGNORE INTO row_locks (name, owner) VALUES (?, ?)").await?;
            let delete = connection.prep("DELETE FROM row_locks WHERE name = ? AND owner = ?").await?;
            let client = RowClient(Arc::new(Mutex::new(Prepared { connection, insert, delete })));
            client.lock(&warm_up_name()).await?.unlock().await?;
            Ok(Arc::new(client) as Arc<dyn Client>)
        })
    }
}

struct Prepared {
    connection: Conn,
    insert: Statement,
    delete: Statement,
}

impl Prepared {
    /// Whether a row came or went.
    async fn changes(&mut self, which: Which, name: &str, owner: i64) -> mysql_async::Result<bool> {
        let statement = match which {
            Which::Insert => &self.insert,
            Which::Delete => &self.delete,
        };
        loop {
            match self.connection.exec_drop(statement, (name, owner)).await {
                // Two inserts before a row that is being deleted wait for each other; one of them is told to try again.
                Err(mysql_async::Error::Server(error)) if error.code == 1213 => {}
                done => return done.map(|()| self.connection.affected_rows() == 1),
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Which {
    Insert,
    Delete,
}

struct RowClient(Arc<Mutex<Prepared>>);

impl Client for RowClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        Box::pin(async move {
            let owner = owner();
            while !self.0.lock().await.changes(Which::Insert, name, owner).await? {
                tokio::time::sleep(POLL_EVERY).await;
            }
            Ok(Box::new(Taken { prepared: self.0.clone(), name: name.to_owned(), owner }) as Box<dyn Held>)
        })
    }
}

struct Taken {
    prepared: Arc<Mutex<Prepared>>,
    name: String,
    owner: i64,
}

impl Held for Taken {
    fn unlock(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async move {
            if !self.prepared.lock().await.changes(Which::Delete, &self.name, self.owner).await? {
                return Err(format!("the row of {:?} was not there any more", self.name).into());
            }
            Ok(())
        })
    }
}
