//! A client of one MySQL or MariaDB, as the facade opens it.

use std::sync::Arc;

use tollgate_core::inbox::Inbox;
use tollgate_core::{BoxFuture, Clock, Result};
use tollgate_sql::SqlBackend;

use crate::config::MySqlConfig;
use crate::database::MySql;
use crate::links::Links;

/// Locks in MySQL or MariaDB.
pub type MySqlBackend = SqlBackend<MySql>;

/// Connects, so that what is wrong is told at once, and has the tables made if they are not there.
pub fn connect(config: MySqlConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<MySqlBackend>> {
    Box::pin(async move {
        let links = Links::connect(config, clock.clone()).await?;
        // Nobody tells those who wait: they look.
        SqlBackend::new(MySql::new(links), Arc::new(Inbox::default()), clock)
    })
}
