//! A client of one PostgreSQL, as the facade opens it.

use std::sync::Arc;

use tollgate_core::inbox::Inbox;
use tollgate_core::{Clock, Keeper, OwnerId, Result};
use tollgate_sql::SqlBackend;

use crate::config::PostgresConfig;
use crate::database::Postgres;
use crate::links::Links;
use crate::listener::Listener;

/// Locks in PostgreSQL.
pub type PostgresBackend = SqlBackend<Postgres>;

/// Connects, so that what is wrong is told at once, and has the tables made if they are not there.
pub async fn connect(config: PostgresConfig, clock: Arc<dyn Clock>) -> Result<PostgresBackend> {
    let links = Arc::new(Links::connect(config, clock.clone()).await?);
    let inbox = Arc::new(Inbox::default());
    // Long enough that nobody else has the same.
    let channel = format!("tg_{}", &OwnerId::random().to_hex()[..16]);
    let listener = Listener::start(&Keeper::global()?, &links, channel.clone(), inbox.clone());
    SqlBackend::new(Postgres::new(links, channel, listener), inbox, clock)
}
