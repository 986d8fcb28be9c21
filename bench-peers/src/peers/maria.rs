//! Connections to MariaDB.

use std::net::SocketAddr;

use mysql_async::{Conn, OptsBuilder};
use tollgate_bench::Failure;

/// A connection to the MariaDB at `address`.
pub(super) async fn connect(address: SocketAddr) -> Result<Conn, Failure> {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(Some("test"))
        // Or it would move over to a socket in the file system, past whoever counts.
        .prefer_socket(false);
    Ok(Conn::new(options).await?)
}
