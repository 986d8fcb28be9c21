//! Which connection a statement goes over.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::Value;
use tollgate_core::{Clock, Moment, Result};
use tollgate_sql::{Lent, Pool};

use crate::config::{Dialect, MySqlConfig};
use crate::error::{Trouble, silent_at};
use crate::link::{Answer, Link, timed};
use crate::place::Place;
use crate::schema::{self, Tables};
use crate::statement::{Statement, Texts};

/// How long a statement may take. The longest that is normal waits for a row and then for a slow disk.
pub(crate) const TO_ANSWER: Duration = Duration::from_secs(5);
/// How often what others were in the way of is tried again.
pub(crate) const TRIES: u32 = 5;

/// The connections of one client.
pub(crate) struct Links {
    config: MySqlConfig,
    pool: Pool<Link>,
    texts: Arc<Texts>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where tokens come from.
    pub(crate) dialect: Dialect,
}

impl Links {
    /// Connects, and has the tables made.
    pub(crate) async fn connect(config: MySqlConfig, clock: Arc<dyn Clock>) -> Result<Self> {
        config.check()?;
        let tables = Tables::new(&config.table_prefix);
        let texts = Arc::new(Texts::new(&tables));
        let pool = Pool::new(config.connections);
        let mut first = pool
            .lend(|link: &mut Link| link.is_usable(), async || Link::open(&config, texts.clone()).await)
            .await?;
        let installing = schema::install(first.connection(), &tables, &config);
        let installed = tokio::time::timeout(schema::PATIENCE, installing).await;
        let dialect = installed.unwrap_or_else(|_| Err(silent_at(&config, schema::PATIENCE)))?;
        first.give_back();
        Ok(Self { config, pool, texts, clock, dialect })
    }

    /// A connection for one statement.
    pub(crate) async fn lend(&self) -> Result<Lent<Link>> {
        let open = async || Link::open(&self.config, self.texts.clone()).await;
        self.pool.lend(|link| link.is_usable(), open).await
    }

    /// The same for `statement`: renewals go first.
    async fn lend_for(&self, statement: Statement) -> Result<Lent<Link>> {
        if !statement.goes_first() {
            return self.lend().await;
        }
        let open = async || Link::open(&self.config, self.texts.clone()).await;
        self.pool.lend_first(|link| link.is_usable(), open).await
    }

    /// Runs a statement that may be repeated, and answers when it was sent last.
    pub(crate) async fn run(&self, statement: Statement, values: Vec<Value>) -> Result<(Moment, Answer)> {
        let (sent, answer) = self.try_run(statement, values).await?;
        answer.map(|answer| (sent, answer)).map_err(|trouble| trouble.into_error(statement.what()))
    }

    /// The same, and what the database said if it did not do it. A connection that was closed while nobody used it is left
    /// for the next.
    pub(crate) async fn try_run(
        &self,
        statement: Statement,
        values: Vec<Value>,
    ) -> Result<(Moment, std::result::Result<Answer, Trouble>)> {
        let (sent, answer, _) = self.try_repeatedly(statement, values).await?;
        Ok((sent, answer))
    }

    /// The same, for a statement that may be done later all the same: nothing if somebody sits on the row and it takes longer
    /// than `limit`.
    pub(crate) async fn run_within(
        &self,
        limit: Duration,
        statement: Statement,
        values: Vec<Value>,
    ) -> Result<Option<(Moment, Answer)>> {
        let Ok(answer) = tokio::time::timeout(limit, self.try_run(statement, values)).await else {
            return Ok(None);
        };
        match answer? {
            (sent, Ok(answer)) => Ok(Some((sent, answer))),
            (_, Err(trouble)) if trouble.is_blocked() => Ok(None),
            (_, Err(trouble)) => Err(trouble.into_error(statement.what())),
        }
    }

    /// The same, and whether it was sent more than once.
    pub(crate) async fn try_repeatedly(
        &self,
        statement: Statement,
        values: Vec<Value>,
    ) -> Result<(Moment, std::result::Result<Answer, Trouble>, bool)> {
        let mut repeated = false;
        loop {
            let mut link = self.lend_for(statement).await?;
            let was_used = link.was_used();
            let (sent, answer) = self.run_on(&mut link, statement, values.clone()).await;
            let answer = self.settled(link, answer);
            if !(was_used && answer.as_ref().is_err_and(Trouble::is_of_connection)) {
                return Ok((sent, answer, repeated));
            }
            repeated = true;
        }
    }

    /// Runs a statement over `link`. What the database says it did not do, because others were in the way, is tried again.
    pub(crate) async fn run_on(
        &self,
        link: &mut Link,
        statement: Statement,
        values: Vec<Value>,
    ) -> (Moment, std::result::Result<Answer, Trouble>) {
        let mut tries = 1;
        loop {
            let (sent, answer) = timed(&*self.clock, TO_ANSWER, link.run(statement, values.clone())).await;
            match answer {
                Err(trouble) if trouble.is_passing() && tries < TRIES => {
                    tokio::time::sleep(trouble.pause(tries)).await;
                }
                answer => return (sent, answer),
            }
            tries += 1;
        }
    }

    /// Gives a connection back, unless an answer may still come over it.
    pub(crate) fn settled<T>(
        &self,
        link: Lent<Link>,
        answer: std::result::Result<T, Trouble>,
    ) -> std::result::Result<T, Trouble> {
        match &answer {
            Err(trouble) if !trouble.is_answer() => drop(link),
            _ => link.give_back(),
        }
        answer
    }

    /// Makes sure that the server executes nothing more of what was sent over a connection.
    pub(crate) async fn end(&self, place: &Place) -> Result<()> {
        loop {
            let (_, answer) =
                self.run(Statement::IsThere, vec![place.id.into(), place.host.as_str().into()]).await?;
            if answer.rows.is_empty() {
                return Ok(());
            }
            let (_, killed) = self.try_run(Statement::Kill, vec![place.id.into()]).await?;
            match killed {
                // It is gone already.
                Err(trouble) if trouble.code() == Some(1094) => {}
                Err(trouble) => return Err(trouble.not_done().into_error("ending a connection")),
                Ok(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Closes them all.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}
