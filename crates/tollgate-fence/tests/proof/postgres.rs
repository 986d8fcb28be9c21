//! A table of PostgreSQL, written to in transactions that begin with `admit`.

use tokio_postgres::{Client, NoTls};
use tollgate::postgres::PostgresFence;
use tollgate_core::{BoxFuture, OwnerId, Result};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proof::{Entry, Proof, Register, Resource};

/// Where the locks and the data are.
pub(crate) fn url() -> String {
    let roomy = Config::postgres().argument("-c").argument("max_connections=500");
    format!("postgres://postgres@{}/postgres", engines::shared(&roomy).address())
}

pub(crate) fn advisory() -> String {
    format!("{}?style=advisory", url())
}

pub(crate) struct Tables {
    /// Whether triggers refuse those who forgot to be admitted.
    pub(crate) guarded: bool,
}

struct Table {
    client: Client,
    table: String,
}

async fn connected(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Resource for Tables {
    fn name(&self) -> &'static str {
        if self.guarded { "postgres-guarded" } else { "postgres" }
    }

    fn found(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let (url, table) = (url(), format!("r{}", OwnerId::random().to_hex()));
            let client = connected(&url).await;
            PostgresFence::new().install(&client).await.unwrap();
            for table in [&table, &format!("{table}_plain")] {
                let nothing = Entry::default();
                let made =
                    format!("create table {table} (entry text); insert into {table} values ('{nothing}')");
                client.batch_execute(&made).await.unwrap();
            }
            if self.guarded {
                client.execute("select tollgate.guard($1)", &[&table]).await.unwrap();
            }
            format!("{url} {table}")
        })
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        Box::pin(async move {
            let (url, table) = place.split_once(' ').unwrap();
            Box::new(Table { client: connected(url).await, table: table.to_owned() }) as Box<dyn Register>
        })
    }
}

impl Register for Table {
    fn enter<'a>(&'a mut self, proof: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async {
            let mut transaction = self.client.transaction().await.unwrap();
            PostgresFence::new().admit(&mut transaction, &self.table, proof.fence).await?;
            let row = transaction.query_one(&format!("select entry from {}", self.table), &[]).await.unwrap();
            transaction.commit().await.unwrap();
            Ok(row.get::<_, &str>(0).parse().unwrap())
        })
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut transaction = self.client.transaction().await.unwrap();
            PostgresFence::new().admit(&mut transaction, &self.table, proof.fence).await?;
            let update = format!("update {} set entry = '{entry}'", self.table);
            transaction.batch_execute(&update).await.unwrap();
            transaction.commit().await.unwrap();
            Ok(())
        })
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(async {
            let read = format!("select entry from {}_plain", self.table);
            self.client.query_one(&read, &[]).await.unwrap().get::<_, &str>(0).parse().unwrap()
        })
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let update = format!("update {}_plain set entry = '{entry}'", self.table);
            self.client.batch_execute(&update).await.unwrap();
        })
    }
}
