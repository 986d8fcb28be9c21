//! Connections for what is not in a hurry: each is driven by a task of its own.

use tokio_postgres::{Client, Config};
use tollgate_core::Result;

use crate::config::PostgresConfig;
use crate::dial::dial;

/// Opens a connection to `server`. It lives as long as the client and the runtime that this is called on.
pub(crate) async fn connect(config: &PostgresConfig, server: &Config) -> Result<Client> {
    Ok(dial(config, server).await?.into_client())
}
