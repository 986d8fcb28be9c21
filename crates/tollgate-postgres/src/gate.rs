//! Marks in PostgreSQL for what is not in PostgreSQL: the table of [`PostgresFence`], over connections of the gate's own.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use tollgate_core::gate::{self, Confirmed};
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, Result, Token};
use tollgate_sql::{Pool, within};

use crate::config::{PostgresConfig, TO_CONNECT};
use crate::error::{Trouble, silent};
use crate::fence::{PostgresFence, refusal};
use crate::names::Names;
use crate::plain;

/// How long a statement may take. The longest that is normal waits for somebody's transaction and then for a slow disk.
const TO_ANSWER: Duration = Duration::from_secs(5);
/// How often what others were in the way of is tried again.
const TRIES: u32 = 5;
/// How long the server waits for somebody who is admitted within a transaction. Said with each statement, for a pooler may give
/// the next one to another server process; and said at all, for the server does not see that nobody waits for it any more.
const PATIENCE: &str = "set_config('lock_timeout', '1s', true)";
/// What is asked for, to whoever asked.
const WHAT: &str = "admitting the token";

/// A [`Gate`] whose marks are in a PostgreSQL: `tollgate.fences`, as those of [`PostgresFence`] are, so that what is fenced by
/// both is one resource.
///
/// ```no_run
/// # async fn example() -> tollgate_core::Result<()> {
/// use tollgate_core::Gate;
/// use tollgate_postgres::{PostgresConfig, PostgresGate};
///
/// let gate = PostgresGate::connect(PostgresConfig::from_url("postgres://127.0.0.1/shop")?).await?;
/// println!("{:?}", gate.highest("orders").await?);
/// # Ok(())
/// # }
/// ```
pub struct PostgresGate {
    config: PostgresConfig,
    pool: Pool<Client>,
    confirmed: Confirmed,
    raise: String,
    read: String,
    /// Reads the mark behind whoever is about to raise it.
    confirm: String,
}

/// A value and its type, as PostgreSQL is told it.
type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

impl PostgresGate {
    /// Connects, and makes the table and the functions if they are not there.
    ///
    /// # Errors
    /// `Unavailable` if no PostgreSQL answers; `Denied` if this user may not create them.
    pub async fn connect(config: PostgresConfig) -> Result<Self> {
        config.check()?;
        let names = Names::of(&config.schema, &config.table_prefix);
        // Whatever the server is set up to do: a mark that was told has to be on the disk.
        let durable = "case current_setting('synchronous_commit') when 'off' then \
                       set_config('synchronous_commit', 'on', true) end";
        let gate = Self {
            raise: names.written_into(&format!("select {durable}, {PATIENCE}, tollgate.admit($1, $2)")),
            read: names.written_into("select token from tollgate.fences where resource = $1"),
            confirm: names.written_into(&format!(
                "with ours as materialized (select {PATIENCE}, set_config('synchronous_commit', 'off', true)) \
                 select token from tollgate.fences as marks, ours where resource = $1 for share of marks"
            )),
            pool: Pool::new(config.connections),
            confirmed: Confirmed::default(),
            config,
        };
        let first = gate.pool.lend(usable, async || gate.open().await).await?;
        let fence = PostgresFence::with(names);
        match within(TO_ANSWER, fence.install(&*first)).await {
            Some(installed) => installed?,
            None => return Err(silent(TO_ANSWER).into_error("installing the fence")),
        }
        first.give_back();
        Ok(gate)
    }

    async fn open(&self) -> Result<Client> {
        let mut server = self.config.server.clone();
        server.application_name("tollgate gate");
        let opening = plain::connect(&self.config, &server);
        tokio::time::timeout(TO_CONNECT, opening).await.unwrap_or_else(|_| {
            let message =
                format!("the PostgreSQL at {} did not answer within {TO_CONNECT:?}", self.config.address());
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    /// Runs a statement that may be repeated, as all of a gate's may.
    async fn run(&self, sql: &str, values: &[Typed<'_>]) -> Result<std::result::Result<Vec<Row>, Trouble>> {
        let mut tries = 1;
        loop {
            let client = self.pool.lend(usable, async || self.open().await).await?;
            let answer = within(TO_ANSWER, client.query_typed(sql, values)).await;
            let answer = answer.map_or_else(|| Err(silent(TO_ANSWER)), |answer| answer.map_err(Trouble::of));
            if answer.as_ref().err().is_none_or(Trouble::is_answer) {
                client.give_back();
            }
            match answer {
                Err(trouble) if trouble.is_passing() && tries < TRIES => {
                    tokio::time::sleep(Duration::from_millis(u64::from(tries) * 5)).await;
                }
                answer => return Ok(answer),
            }
            tries += 1;
        }
    }

    async fn mark(&self, sql: &str, resource: &str) -> Result<Option<Token>> {
        gate::check(resource)?;
        let asked = self.run(sql, &[(&resource, Type::TEXT)]).await?;
        let rows = asked.map_err(|trouble| told(trouble, "reading the mark"))?;
        // Where only readers were, the row says 0.
        Ok(rows.first().and_then(|row| Token::new(row.get::<_, i64>(0).unsigned_abs()).ok()))
    }

    async fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        gate::check(resource)?;
        if self.confirmed.needs_no_write(resource, fence)
            && let Some(decided) = gate::by_reading(self.mark(&self.confirm, resource).await?, fence)
        {
            return decided;
        }
        let token = i64::from(fence);
        match self.run(&self.raise, &[(&resource, Type::TEXT), (&token, Type::INT8)]).await? {
            Ok(_) => {
                self.confirmed.note(resource, fence.token());
                Ok(())
            }
            Err(trouble) => Err(match trouble.said().and_then(|error| refusal(error, fence)) {
                Some(refused) => refused,
                None => told(trouble, WHAT),
            }),
        }
    }
}

fn told(trouble: Trouble, what: &str) -> Error {
    if trouble.is_blocked() {
        let message =
            "somebody is admitted to this resource, and their transaction has not ended; come again";
        return trouble.into_error_of(ErrorKind::Unavailable, message.to_owned());
    }
    trouble.into_error(what)
}

fn usable(client: &mut Client) -> bool {
    !client.is_closed()
}

impl Gate for PostgresGate {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.decide(resource, fence).await.map_err(|error| error.during("admit")) })
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async move {
            self.mark(&self.read, resource).await.map_err(|error| error.during("read the mark"))
        })
    }
}
