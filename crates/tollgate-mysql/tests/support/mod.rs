//! What tests with servers of their own share.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use mysql_async::{Conn, OptsBuilder};
use tollgate_core::{BootClock, Keeper, Locks};
use tollgate_mysql::MySqlConfig;

pub(crate) mod wire;

/// Our configuration for the MariaDB at `address`.
pub(crate) fn config(address: SocketAddr) -> MySqlConfig {
    MySqlConfig::from_url(&format!("mariadb://root@{address}/test")).unwrap()
}

/// Locks there.
pub(crate) async fn locks(config: MySqlConfig) -> Locks {
    let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
    Locks::new(Arc::new(tollgate_mysql::connect(config, clock).await.unwrap())).unwrap()
}

/// A user's connection, set up as the server does it.
pub(crate) async fn connection(address: SocketAddr) -> Conn {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(Some("test"))
        .prefer_socket(false);
    Conn::new(options).await.unwrap()
}

/// Has the command-line client run SQL, as people do.
pub(crate) fn apply(address: SocketAddr, database: &str, sql: &str) {
    let mut command = Command::new("mariadb");
    command.args(["-h", "127.0.0.1", "-P", &address.port().to_string(), "-u", "root", database]);
    let mut client = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
