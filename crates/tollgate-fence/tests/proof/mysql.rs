//! A table of MariaDB, written to in transactions that begin with `tollgate_admit`.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tollgate::mysql::MySqlFence;
use tollgate_core::{BoxFuture, OwnerId, Result};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proof::{Entry, Proof, Register, Resource};

/// Where the locks and the data are.
pub(crate) fn url() -> String {
    let roomy = Config::mariadb().argument("--max-connections=1000");
    format!("mysql://root@{}/test", engines::shared(&roomy).address())
}

pub(crate) fn session() -> String {
    format!("{}?style=session", url())
}

pub(crate) struct Tables {
    /// Whether triggers refuse those who forgot to be admitted.
    pub(crate) guarded: bool,
}

struct Table {
    connection: Conn,
    fence: MySqlFence,
    table: String,
}

async fn connected(url: &str) -> Conn {
    Conn::from_url(format!("{url}?prefer_socket=false")).await.unwrap()
}

async fn read(connection: &mut Conn, table: &str) -> Entry {
    let text: Option<String> = connection.query_first(format!("select entry from {table}")).await.unwrap();
    text.unwrap().parse().unwrap()
}

impl Resource for Tables {
    fn name(&self) -> &'static str {
        if self.guarded { "mysql-guarded" } else { "mysql" }
    }

    fn found(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let (url, table) = (url(), format!("r{}", &OwnerId::random().to_hex()[..16]));
            let mut connection = connected(&url).await;
            let fence = MySqlFence::around(&table).unwrap();
            fence.install(&mut connection).await.unwrap();
            for table in [&table, &format!("{table}_plain")] {
                let nothing = Entry::default();
                connection
                    .query_drop(format!("create table {table} (entry text) engine=innodb"))
                    .await
                    .unwrap();
                connection.query_drop(format!("insert into {table} values ('{nothing}')")).await.unwrap();
            }
            if self.guarded {
                fence.guard(&mut connection, &table).await.unwrap();
            }
            connection.disconnect().await.unwrap();
            format!("{url} {table}")
        })
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        Box::pin(async move {
            let (url, table) = place.split_once(' ').unwrap();
            let fence = MySqlFence::around(table).unwrap();
            Box::new(Table { connection: connected(url).await, fence, table: table.to_owned() })
                as Box<dyn Register>
        })
    }
}

impl Register for Table {
    fn enter<'a>(&'a mut self, proof: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async {
            let mut tx = self.connection.start_transaction(TxOpts::default()).await.unwrap();
            if let Err(refused) = self.fence.admit(&mut tx, proof.fence).await {
                tx.rollback().await.unwrap();
                return Err(refused);
            }
            let text: Option<String> =
                tx.query_first(format!("select entry from {}", self.table)).await.unwrap();
            tx.commit().await.unwrap();
            Ok(text.unwrap().parse().unwrap())
        })
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut tx = self.connection.start_transaction(TxOpts::default()).await.unwrap();
            if let Err(refused) = self.fence.admit(&mut tx, proof.fence).await {
                tx.rollback().await.unwrap();
                return Err(refused);
            }
            tx.query_drop(format!("update {} set entry = '{entry}'", self.table)).await.unwrap();
            tx.commit().await.unwrap();
            Ok(())
        })
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(async { read(&mut self.connection, &format!("{}_plain", self.table)).await })
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let update = format!("update {}_plain set entry = '{entry}'", self.table);
            self.connection.query_drop(update).await.unwrap();
        })
    }
}
