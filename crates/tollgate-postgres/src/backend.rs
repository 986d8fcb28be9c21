//! A client of one PostgreSQL, as the facade opens it.

use std::sync::Arc;

use tollgate_core::inbox::Inbox;
use tollgate_core::{BoxFuture, Clock, Keeper, OwnerId, Result};
use tollgate_sql::SqlBackend;

use crate::config::PostgresConfig;
use crate::database::Postgres;
use crate::links::Links;
use crate::listener::Listener;
use crate::places::places;

/// Locks in PostgreSQL.
pub type PostgresBackend = SqlBackend<Postgres>;

/// Connects, so that what is wrong is told at once, and has the tables made if they are not there.
pub fn connect(config: PostgresConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<PostgresBackend>> {
    Box::pin(async move {
        let links = Arc::new(Links::connect(config, clock.clone()).await?);
        let inbox = Arc::new(Inbox::default());
        // Long enough that nobody else has the same.
        let channel = format!("tg_{}", &OwnerId::random().to_hex()[..16]);
        let (places, due) = places();
        let listener = Listener::start(&Keeper::global()?, &links, channel.clone(), inbox.clone(), due);
        SqlBackend::new(Postgres::new(links, channel, places, listener), inbox, clock)
    })
}
