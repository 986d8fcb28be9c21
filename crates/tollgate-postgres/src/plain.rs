//! Connections for what is not in a hurry: each is driven by a task of its own.

use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate_core::Result;

use crate::config::PostgresConfig;
use crate::error::of_connect;

/// Opens a connection to `server`. It lives as long as the client and the runtime that this is called on.
pub(crate) async fn connect(config: &PostgresConfig, server: &Config) -> Result<Client> {
    let failed = |error| of_connect(error, config);
    match &config.tls {
        None => {
            let (client, connection) = server.connect(NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(client)
        }
        Some(files) => {
            let tls = MakeRustlsConnect::new((*tollgate_core::tls::client(files, &[])?).clone());
            let (client, connection) = server.connect(tls).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(client)
        }
    }
}
