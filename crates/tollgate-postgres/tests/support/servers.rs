//! A PostgreSQL for all tests of a program, and plain clients of it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use tollgate_testkit::engines::{self, Config, Engine};

/// The PostgreSQL that all tests of a program share.
pub(crate) fn shared() -> &'static Engine {
    engines::shared(&Config::postgres())
}

/// A plain client, as users have it.
pub(crate) async fn client(engine: &Engine) -> Client {
    client_of(engine, "postgres").await
}

/// A plain client that logs in as `user`.
pub(crate) async fn client_of(engine: &Engine, user: &str) -> Client {
    client_at(engine.address(), user).await
}

/// The same at an address.
pub(crate) async fn client_at(address: SocketAddr, user: &str) -> Client {
    let config = format!("host={} port={} user={user} dbname=postgres", address.ip(), address.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// One value that a statement returns, as text.
pub(crate) async fn value(client: &Client, sql: &str) -> String {
    let row = client.query_one(&format!("select ({sql})::text"), &[]).await.unwrap();
    row.get::<_, Option<String>>(0).unwrap_or_default()
}

/// The SQLSTATE of a statement that fails.
#[track_caller]
pub(crate) fn state<T: std::fmt::Debug>(answer: Result<T, tokio_postgres::Error>) -> String {
    answer.unwrap_err().code().unwrap().code().to_owned()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Waits until `sql` returns `expected`.
pub(crate) async fn until(client: &Client, sql: &str, expected: &str) {
    for _ in 0..4000 {
        if value(client, sql).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{sql} never returned {expected}");
}

/// Waits until the backend `pid` waits for a lock.
pub(crate) async fn until_blocked(client: &Client, pid: &str) {
    let sql = format!("select count(*) from pg_stat_activity where pid = {pid} and wait_event_type = 'Lock'");
    until(client, &sql, "1").await;
}

/// Locks by leases, of a client of its own.
pub(crate) async fn locks(engine: &Engine) -> tollgate_core::Locks {
    super::locks(&url(engine)).await.unwrap()
}

/// What users write.
pub(crate) fn url(engine: &Engine) -> String {
    super::url(engine.address())
}

/// Makes `replica`, which does not run, a copy of `primary` that follows it.
pub(crate) fn copy(primary: &Engine, replica: &Engine) {
    let data = replica.folder().join("node-1/data");
    let kept = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&data).unwrap());
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
    }
    let address = primary.address();
    let mut command = std::process::Command::new("/usr/lib/postgresql/15/bin/pg_basebackup");
    command.args(["-R", "-X", "stream", "-c", "fast", "-U", "postgres", "-h", &address.ip().to_string()]);
    command.arg("-p").arg(address.port().to_string()).arg("-D").arg(&data);
    // PostgreSQL wants its data to be its own.
    std::os::unix::process::CommandExt::uid(&mut command, kept);
    let output = command.current_dir(replica.folder()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
