//! One connection for leases, and the statements that were prepared on it.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Row, SimpleQueryMessage, Statement as Prepared};
use tollgate_core::{Clock, Moment, Result};
use tollgate_sql::within;

use crate::config::PostgresConfig;
use crate::dial::dial;
use crate::driven::{Answer, Driven, Value};
use crate::error::silent;
use crate::statement::{COUNT, Statement, Texts};

/// A connection.
pub(crate) struct Link {
    connection: Driven,
    texts: Arc<Texts>,
    prepared: [Option<Prepared>; COUNT],
    /// The server's process, if there is no pooler in between.
    pub(crate) process: Option<i32>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("process", &self.process)
            .field("ended", &self.connection.has_ended())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Connects.
    pub(crate) async fn open(
        config: &PostgresConfig,
        server: &tokio_postgres::Config,
        texts: Arc<Texts>,
    ) -> Result<Self> {
        let connection = dial(config, server).await?;
        Ok(Self { connection, texts, prepared: Default::default(), process: None })
    }

    /// Whether it is still there, as far as can be told without asking.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.connection.is_usable()
    }

    /// The next notification. Ends with the connection.
    pub(crate) async fn notification(&mut self) -> Option<tokio_postgres::Notification> {
        self.connection.notification().await
    }

    /// Runs statements without values, one after the other, and answers with the rows of the last.
    pub(crate) async fn simple(&mut self, sql: &str) -> Answer<Vec<SimpleQueryMessage>> {
        self.connection.simple(sql).await
    }

    /// Runs one statement that has no name.
    pub(crate) async fn ask(&mut self, sql: &str, values: &[(Value<'_>, Type)]) -> Answer<Vec<Row>> {
        self.connection.unnamed(sql, values).await
    }

    /// Runs a statement, prepared once for each connection, and answers with its rows.
    pub(crate) async fn run(&mut self, statement: Statement, values: &[Value<'_>]) -> Answer<Vec<Row>> {
        let Self { connection, texts, prepared, .. } = self;
        let place = &mut prepared[statement as usize];
        connection.prepared(place, texts.of(statement), statement.types(), values).await
    }

    /// The same without a name for it, as poolers need it.
    pub(crate) async fn run_unnamed(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
    ) -> Answer<Vec<Row>> {
        let typed: Vec<_> = values.iter().copied().zip(statement.types().iter().cloned()).collect();
        self.connection.unnamed(self.texts.of(statement), &typed).await
    }
}

/// When a statement was sent, and what came of it within `limit`.
pub(crate) async fn timed<T>(
    clock: &dyn Clock,
    limit: Duration,
    request: impl Future<Output = Answer<T>>,
) -> (Moment, Answer<T>) {
    let sent = clock.now();
    let answer = within(limit, request).await;
    (sent, answer.unwrap_or_else(|| Err(silent(limit))))
}
