//! Where a connection ends at the server.

use mysql_async::Conn;

use crate::error::Trouble;
use crate::wire::first;

/// What the server knows a connection by. A number alone is given again after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its number.
    pub(crate) id: u32,
    /// The address and port that it comes from, as the server sees them.
    pub(crate) host: String,
}

impl Place {
    /// That of a connection of ours.
    pub(crate) async fn of(connection: &mut Conn) -> Result<Self, Trouble> {
        let question = "select id, host from information_schema.processlist where id = connection_id()";
        let told: Option<(u32, String)> = first(connection, question).await?;
        let (id, host) = told.unwrap_or_else(|| (connection.id(), String::new()));
        Ok(Self { id, host })
    }
}
