//! One connection, and the statements that were prepared on it.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Statement as Prepared, Value};
use tollgate_core::{Clock, Error, Moment, Result};
use tollgate_sql::within;

use crate::config::MySqlConfig;
use crate::error::{Trouble, silent, silent_at, uncommitted};
use crate::place::Place;
use crate::statement::{COUNT, Statement, Texts};
use crate::wire::{Wire, collected};

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Wire,
    place: Place,
    texts: Arc<Texts>,
    prepared: [Option<Prepared>; COUNT],
    /// Whether its last request was answered.
    settled: bool,
    /// Whether one was: it may have been closed since, and nobody has noticed.
    used: bool,
}

/// What a statement was answered with.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// What it selected.
    pub(crate) rows: Vec<Row>,
    /// How many rows it changed.
    pub(crate) changed: u64,
    /// The number that it remembered.
    pub(crate) number: Option<u64>,
}

impl Answer {
    /// What procedures answer that say yes or no.
    pub(crate) fn says_yes(&self) -> bool {
        self.rows.first().and_then(|row| row.get::<Option<i64>, _>(0)).flatten() == Some(1)
    }
}

impl Link {
    /// Connects.
    pub(crate) async fn open(config: &MySqlConfig, texts: Arc<Texts>) -> Result<Self> {
        let opening = async {
            let mut connection = Wire::open(config, config.options()?).await?;
            let place = Place::of(&mut connection).await;
            let place = place.map_err(|trouble| trouble.not_done().into_error("the connection setup"))?;
            Ok::<_, Error>((connection, place))
        };
        let (connection, place) = match tokio::time::timeout(config.to_connect, opening).await {
            Ok(opened) => opened?,
            Err(_) => return Err(silent_at(config, config.to_connect)),
        };
        Ok(Self { connection, place, texts, prepared: Default::default(), settled: true, used: false })
    }

    /// Where it ends at the server.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The driver's own connection.
    pub(crate) fn connection(&mut self) -> &mut Conn {
        &mut self.connection
    }

    /// Whether it can be used, as far as can be told without asking.
    pub(crate) fn is_usable(&self) -> bool {
        self.settled
    }

    /// Whether it may have been closed while nobody used it.
    pub(crate) fn was_used(&self) -> bool {
        self.used
    }

    /// Runs a statement, prepared once for each connection.
    pub(crate) async fn run(
        &mut self,
        statement: Statement,
        values: Vec<Value>,
    ) -> std::result::Result<Answer, Trouble> {
        self.settled = false;
        let answer = self.answer(statement, values).await;
        self.settled = match &answer {
            Ok(_) => true,
            // An error does not say whether a transaction is open. Within one the next statement would be answered, and seen
            // by nobody.
            Err(trouble) if trouble.is_answer() => self.connection.query_drop("rollback").await.is_ok(),
            Err(_) => false,
        };
        self.used |= self.settled;
        answer
    }

    async fn answer(
        &mut self,
        statement: Statement,
        values: Vec<Value>,
    ) -> std::result::Result<Answer, Trouble> {
        let place = &mut self.prepared[statement as usize];
        let prepared = match place {
            Some(prepared) => prepared,
            None => {
                let made = self.connection.prep(self.texts.of(statement)).await;
                // Nothing was done yet.
                place.insert(made.map_err(|error| Trouble::of(error).not_done())?)
            }
        };
        let params = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
        let mut result = self.connection.exec_iter(&*prepared, params).await.map_err(Trouble::of)?;
        let (changed, number) = (result.affected_rows(), result.last_insert_id());
        let rows = collected(&mut result).await?;
        result.drop_result().await.map_err(Trouble::of)?;
        let last = self.connection.last_ok_packet();
        if last.is_some_and(|ok| ok.status_flags().contains(StatusFlags::SERVER_STATUS_IN_TRANS)) {
            return Err(uncommitted());
        }
        Ok(Answer { rows, changed, number })
    }
}

/// When a statement was sent, and what came of it within `limit`.
pub(crate) async fn timed<T>(
    clock: &dyn Clock,
    limit: Duration,
    request: impl Future<Output = std::result::Result<T, Trouble>>,
) -> (Moment, std::result::Result<T, Trouble>) {
    let sent = clock.now();
    let answer = within(limit, request).await;
    (sent, answer.unwrap_or_else(|| Err(silent(limit))))
}
