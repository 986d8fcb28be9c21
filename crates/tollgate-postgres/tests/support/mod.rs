//! What tests with servers of their own share.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod servers;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{BootClock, Keeper, Locks, Result};
use tollgate_postgres::{PostgresBackend, PostgresConfig};

/// The URL of the server at `address`, as its own user.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("postgres://postgres@{address}/postgres")
}

pub(crate) async fn backend_of(config: PostgresConfig) -> Result<PostgresBackend> {
    tollgate_postgres::connect(config, Arc::new(BootClock::new(Keeper::global()?))).await
}

pub(crate) async fn backend(url: &str) -> Result<PostgresBackend> {
    backend_of(PostgresConfig::from_url(url)?).await
}

pub(crate) async fn locks(url: &str) -> Result<Locks> {
    Locks::new(Arc::new(backend(url).await?))
}

/// What `psql` prints, a row a line.
pub(crate) fn psql(address: SocketAddr, sql: &str) -> String {
    let mut command = Command::new("psql");
    command.args([
        "-X",
        "-h",
        "127.0.0.1",
        "-p",
        &address.port().to_string(),
        "-U",
        "postgres",
        "-Atqc",
        sql,
    ]);
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap().trim().to_owned()
}

/// The same as a number.
pub(crate) fn number(address: SocketAddr, sql: &str) -> u64 {
    let printed = psql(address, sql);
    printed.parse().unwrap_or_else(|_| panic!("{sql}: {printed}"))
}

/// A connection of the test's own, driven in the background.
pub(crate) async fn client(address: SocketAddr) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&url(address), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < end, "after 30 s still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
