//! What tests with servers of their own share.
#![allow(dead_code, clippy::unwrap_used)]

use std::net::SocketAddr;
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
