//! Marks in PostgreSQL for what is not in PostgreSQL: the table of [`PostgresFence`], over connections of the gate's own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Row, Statement as Prepared};
use tollgate_core::gate::{self, Confirmed};
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, Result, Token};
use tollgate_sql::{Pool, within};

use crate::config::{PostgresConfig, TO_INSTALL};
use crate::dial::dial;
use crate::driven::{Answer, Driven, Value};
use crate::error::{Trouble, silent, silent_at};
use crate::fence::{PostgresFence, refusal};
use crate::names::Names;
use crate::plain;
use crate::pooled::is_pooled;

/// How long a statement may take. The longest that is normal waits for somebody's transaction and then for a slow disk.
const TO_ANSWER: Duration = Duration::from_secs(5);
/// How often what others were in the way of is tried again.
const TRIES: u32 = 5;
/// How long the server waits for somebody who is admitted within a transaction. Said with each statement, for a pooler may give
/// the next one to another server process; and said at all, for the server does not see that nobody waits for it any more.
const PATIENCE: &str = "set_config('lock_timeout', '1s', true)";
/// What others have made in this database is not called instead of what we mean.
const PATH: &str = "set search_path = pg_catalog, pg_temp";
/// What is asked for, to whoever asked.
const WHAT: &str = "admitting the token";
const READING: &str = "reading the mark";

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
    pool: Pool<Line>,
    /// Whether a pooler may give each statement to another server process.
    pooled: AtomicBool,
    confirmed: Confirmed,
    /// Raises a mark that is there, for those who do not come late.
    raise: String,
    /// Raises any mark, or refuses.
    admit: String,
    /// The mark, and whether nobody has it under way.
    look: String,
    /// Reads the mark behind whoever is about to raise it.
    confirm: String,
}

/// A connection.
struct Line {
    connection: Driven,
    look: Option<Prepared>,
}

/// A value and its type, as PostgreSQL is told it.
type Typed<'a> = (Value<'a>, Type);

impl PostgresGate {
    /// Connects, and makes the table and the functions if they are not there.
    ///
    /// # Errors
    /// `Unavailable` if no PostgreSQL answers; `Denied` if this user may not create them.
    pub fn connect(config: PostgresConfig) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            config.check()?;
            let names = Names::of(&config.schema, &config.table_prefix);
            let mut fence = PostgresFence::with(names.clone());
            if let Some(owner) = &config.owner {
                fence = fence.owned_by(owner);
            }
            // Whatever the server is set up to do: a mark that was told has to be on the disk.
            let durable = "case current_setting('synchronous_commit') when 'off' then \
                       set_config('synchronous_commit', 'on', true) end";
            let pooled = prepare(&config, fence).await?;
            Ok(Self {
            // Not by an upsert: that leaves its own transaction on the row, and `look` would take it for somebody's.
            raise: names.written_into(&format!(
                "with ours as materialized (select {durable}, {PATIENCE}) \
                 update tollgate.fences as mark set token = $2 from ours \
                 where mark.resource = $1 and mark.token <= $2 returning 1"
            )),
            admit: names.written_into(&format!("select {durable}, {PATIENCE}, tollgate.admit($1, $2)")),
            // What a transaction that is not over yet has done to a row is seen by its number alone. And something in between
            // may have a standby answer what only reads.
            look: names.written_into(
                "select token, xmax = 0 and not pg_is_in_recovery() from tollgate.fences where resource = $1",
            ),
            confirm: names.written_into(&format!(
                "with ours as materialized (select {PATIENCE}, set_config('synchronous_commit', 'off', true)) \
                 select token from tollgate.fences as marks, ours where resource = $1 for share of marks"
            )),
            pool: Pool::new(config.connections),
            pooled: AtomicBool::new(pooled),
            confirmed: Confirmed::default(),
            config,
        })
        })
    }

    async fn open(&self) -> Result<Line> {
        let mut server = self.config.server.clone();
        server.application_name("tollgate gate");
        let mut connection = dial(&self.config, &server).await?;
        if !self.pooled.load(Ordering::Relaxed) {
            let told = within(TO_ANSWER, connection.simple(PATH)).await;
            let told = told.unwrap_or_else(|| Err(silent(TO_ANSWER)));
            told.map_err(|trouble| trouble.not_done().into_error("the connection setup"))?;
        }
        Ok(Line { connection, look: None })
    }

    /// Runs a statement that may be repeated, as all of a gate's may.
    async fn run(&self, sql: &str, values: &[Typed<'_>]) -> Result<Answer<Vec<Row>>> {
        let mut tries = 1;
        loop {
            let is_usable = |line: &mut Line| line.connection.is_usable();
            let mut line = self.pool.lend(is_usable, async || self.open().await).await?;
            let answer = within(TO_ANSWER, self.run_over(&mut line, sql, values)).await;
            let answer = answer.unwrap_or_else(|| Err(silent(TO_ANSWER)));
            if answer.as_ref().err().is_none_or(Trouble::is_answer) {
                line.give_back();
            }
            match answer {
                Err(trouble) if trouble.is_of_a_pooler() && tries < TRIES => {
                    self.pooled.store(true, Ordering::Relaxed);
                }
                Err(trouble) if trouble.is_passing() && tries < TRIES => {
                    tokio::time::sleep(Duration::from_millis(u64::from(tries) * 5)).await;
                }
                answer => return Ok(answer),
            }
            tries += 1;
        }
    }

    /// Only what is asked all the time is worth being prepared.
    async fn run_over(&self, line: &mut Line, sql: &str, values: &[Typed<'_>]) -> Answer<Vec<Row>> {
        let Line { connection, look } = line;
        match values {
            [(resource, Type::TEXT)] if sql == self.look && !self.pooled.load(Ordering::Relaxed) => {
                connection.prepared(look, sql, &[Type::TEXT], &[*resource]).await
            }
            _ => connection.unnamed(sql, values).await,
        }
    }

    /// The mark, and whether it is the primary that said so and nobody is about to raise it.
    async fn look(&self, resource: &str) -> Result<(Option<Token>, bool)> {
        let asked = self.run(&self.look, &[(&resource, Type::TEXT)]).await?;
        let rows = asked.map_err(|trouble| told(trouble, READING))?;
        Ok((mark(&rows, resource)?, rows.first().is_some_and(|row| row.get(1))))
    }

    /// What a reading has to say to a holder, if that is enough.
    async fn by_reading(&self, resource: &str, fence: Fence) -> Result<Option<Result<()>>> {
        if fence.is_exclusive() {
            let (mark, is_quiet) = self.look(resource).await?;
            let decided = gate::by_reading(mark, fence);
            // A refusal is right whoever is at it: a mark only rises.
            let is_enough = is_quiet && self.confirmed.is(resource, fence.token());
            return Ok(decided.filter(|decided| is_enough || decided.is_err()));
        }
        let rows = self.run(&self.confirm, &[(&resource, Type::TEXT)]).await?;
        let rows = rows.map_err(|trouble| told(trouble, READING))?;
        Ok(gate::by_reading(mark(&rows, resource)?, fence))
    }

    async fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        gate::check(resource)?;
        if let Some(decided) = self.by_reading(resource, fence).await? {
            return decided;
        }
        let token = i64::from(fence);
        let values: [Typed<'_>; 2] = [(&resource, Type::TEXT), (&token, Type::INT8)];
        let mut answer = self.run(&self.raise, &values).await?;
        if answer.as_ref().is_ok_and(Vec::is_empty) {
            answer = self.run(&self.admit, &values).await?;
        }
        match answer {
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

/// Has what is missing made; whether a pooler is in between.
async fn prepare(config: &PostgresConfig, fence: PostgresFence) -> Result<bool> {
    let one = plain::connect(config, &config.server).await?;
    let other = plain::connect(config, &config.server).await?;
    let preparing = async {
        let failed = |error| Trouble::of(error).not_done().into_error("the connection setup");
        let pooled = is_pooled(&one, &other).await.map_err(failed)?;
        if !pooled {
            one.batch_execute(PATH).await.map_err(failed)?;
        }
        fence.install(&one).await?;
        Ok(pooled)
    };
    let prepared = tokio::time::timeout(TO_INSTALL, preparing).await;
    prepared.unwrap_or_else(|_| Err(silent_at(config, TO_INSTALL)))
}

/// What was read. Where only readers were, the row says 0.
fn mark(rows: &[Row], resource: &str) -> Result<Option<Token>> {
    match rows.first().map_or(0, |row| row.get(0)) {
        0_i64 => Ok(None),
        number => {
            let token = u64::try_from(number).ok().and_then(|number| Token::new(number).ok());
            token.map(Some).ok_or_else(|| gate::damaged(resource, number))
        }
    }
}

fn told(trouble: Trouble, what: &str) -> Error {
    if trouble.is_blocked() {
        let message = "a transaction that was admitted to this resource has not ended yet; try again";
        return trouble.into_error_of(ErrorKind::Unavailable, message.to_owned());
    }
    trouble.into_error(what)
}

impl Gate for PostgresGate {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.decide(resource, fence).await.map_err(|error| error.during("admit")) })
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async move {
            gate::check(resource).map_err(|error| error.during("read the mark"))?;
            let (mark, _) = self.look(resource).await.map_err(|error| error.during("read the mark"))?;
            Ok(mark)
        })
    }
}
