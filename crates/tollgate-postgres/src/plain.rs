//! Connections for what is not in a hurry: each is driven by a task of its own.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::PostgresConfig;
use crate::error::of_connect;

type Result<T, E = tollgate_core::Error> = std::result::Result<T, E>;

/// How often a connection is asked for.
const TRIES: u32 = 3;

/// Opens a connection to `server`. It lives as long as the client and the runtime that this is called on.
pub(crate) async fn connect(config: &PostgresConfig, server: &Config) -> Result<Client> {
    let failed = |error| of_connect(error, config);
    match &config.tls {
        None => {
            let opened = patiently(|| server.connect(NoTls)).await;
            let (client, connection) = opened.map_err(failed)?;
            tokio::spawn(connection);
            Ok(client)
        }
        Some(files) => {
            let tls = MakeRustlsConnect::new((*tollgate_core::tls::client(files, &[])?).clone());
            let opened = patiently(|| server.connect(tls.clone())).await;
            let (client, connection) = opened.map_err(failed)?;
            tokio::spawn(connection);
            Ok(client)
        }
    }
}

/// Connects, and again if a pooler was about to lend a process that has just ended: PgBouncer says it of the one that comes, and
/// the next gets another.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, Error>>>(
    connect: impl Fn() -> F,
) -> Result<T, Error> {
    let mut tries = 1;
    loop {
        match connect().await {
            Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) && tries < TRIES => tries += 1,
            opened => return opened,
        }
    }
}
