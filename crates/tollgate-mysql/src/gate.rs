//! Marks in MySQL or MariaDB for what is not in there: the table of [`MySqlFence`], over connections of the gate's own.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params};
use tollgate_core::gate::{self, Confirmed};
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, Result, Token};
use tollgate_sql::{Lent, Pool, within};

use crate::config::MySqlConfig;
use crate::error::{Trouble, silent, silent_at};
use crate::fence::MySqlFence;
use crate::links::{TO_ANSWER, TRIES};
use crate::schema::Tables;
use crate::wire::{Wire, collected};

/// What is asked for, to whoever asked.
const WHAT: &str = "admitting the token";

/// A [`Gate`] whose marks are in a MySQL or MariaDB: `tollgate_fences`, as those of [`MySqlFence`] are, so that what is fenced
/// by both is one resource.
///
/// ```no_run
/// # async fn example() -> tollgate_core::Result<()> {
/// use tollgate_core::Gate;
/// use tollgate_mysql::{MySqlConfig, MySqlGate};
///
/// let gate = MySqlGate::connect(MySqlConfig::from_url("mysql://root@127.0.0.1/shop")?).await?;
/// println!("{:?}", gate.highest("orders").await?);
/// # Ok(())
/// # }
/// ```
pub struct MySqlGate {
    config: MySqlConfig,
    pool: Pool<Line>,
    confirmed: Confirmed,
    raise: String,
    flush: String,
    read: String,
    /// Reads the mark behind whoever is about to raise it.
    confirm: String,
}

/// A connection.
struct Line {
    connection: Wire,
    /// Whether something was answered over it: it may have been closed since, and the driver does not tell.
    used: bool,
}

impl MySqlGate {
    /// Connects, and makes the table and the procedures if they are not there.
    ///
    /// # Errors
    /// `Unavailable` if no database answers; `Denied` if this user may not create them.
    pub fn connect(config: MySqlConfig) -> BoxFuture<'static, Result<Self>> {
        Box::pin(Self::opened(config))
    }

    async fn opened(config: MySqlConfig) -> Result<Self> {
        config.check()?;
        let tables = Tables::new(&config.table_prefix);
        let gate = Self {
            // What the mark is then comes back with the answer: a read of its own may be answered by a replica that is behind. What
            // is no mark stays as it is, and nothing comes back.
            raise: tables.named(
                "insert into tollgate_fences values (?, last_insert_id(?)) on duplicate key update \
                 token = if(token between 0 and 9007199254740991, last_insert_id(greatest(token, ?)), \
                     if(last_insert_id(0) = 0, token, token))",
            ),
            // No resource is called by nothing, so that this row is nobody's.
            flush: tables.named(
                "insert into tollgate_fences values ('', 1) on duplicate key update token = token % 1000000 + 1",
            ),
            read: tables.named("select token from tollgate_fences where resource = ?"),
            confirm: tables.named("select token from tollgate_fences where resource = ? lock in share mode"),
            pool: Pool::new(config.connections),
            confirmed: Confirmed::default(),
            config,
        };
        let mut first = gate.lend().await?;
        // What the fence is around does not matter to the table it is in.
        let mut fence = MySqlFence::around("gate")?.with_table_prefix(&gate.config.table_prefix)?;
        if let Some(owner) = &gate.config.owner {
            fence = fence.owned_by(owner);
        }
        match within(TO_ANSWER, fence.install(&mut first.connection)).await {
            Some(installed) => installed?,
            None => return Err(silent(TO_ANSWER).into_error("installing the fence")),
        }
        first.give_back();
        Ok(gate)
    }

    async fn lend(&self) -> Result<Lent<Line>> {
        // What is not given back was not answered, so that all that are idle can be used.
        self.pool.lend(|_| true, async || self.open().await).await
    }

    async fn open(&self) -> Result<Line> {
        let options = self.config.options()?;
        match tokio::time::timeout(self.config.to_connect, Wire::open(&self.config, options)).await {
            Ok(opened) => Ok(Line { connection: opened?, used: false }),
            Err(_) => Err(silent_at(&self.config, self.config.to_connect)),
        }
    }

    /// Runs a statement that may be repeated, as all of a gate's may.
    async fn run(&self, sql: &str, values: Params) -> Result<Answer> {
        let mut tries = 1;
        loop {
            let mut line = self.lend().await?;
            let was_used = line.used;
            let answer = within(TO_ANSWER, asked(&mut line.connection, sql, values.clone())).await;
            let answer = answer.unwrap_or_else(|| Err(silent(TO_ANSWER)));
            if answer.as_ref().err().is_none_or(Trouble::is_answer) {
                line.used = true;
                line.give_back();
            }
            match answer {
                // Others that were idle may have been closed with it; each is left behind once.
                Err(trouble) if was_used && trouble.is_of_connection() => {}
                Err(trouble) if trouble.is_passing() && tries < TRIES => {
                    tokio::time::sleep(trouble.pause(tries)).await;
                    tries += 1;
                }
                answer => return answer.map_err(|trouble| trouble.into_error(WHAT)),
            }
        }
    }

    async fn mark(&self, sql: &str, resource: &str) -> Result<Option<Token>> {
        gate::check(resource)?;
        let answer = self.run(sql, (resource.as_bytes(),).into()).await?;
        // Where only readers were, the row says 0.
        let Some(number) = answer.selected.filter(|number| *number != 0) else { return Ok(None) };
        let mark = u64::try_from(number).ok().and_then(|number| Token::new(number).ok());
        mark.map(Some).ok_or_else(|| gate::damaged(resource, number))
    }

    async fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        gate::check(resource)?;
        if self.confirmed.needs_no_write(resource, fence)
            && let Some(decided) = gate::by_reading(self.mark(&self.confirm, resource).await?, fence)
        {
            return decided;
        }
        let token = i64::from(fence);
        let raised = self.run(&self.raise, (resource.as_bytes(), token, token).into()).await?;
        let mark = raised.remembered.and_then(|number| Token::new(number).ok());
        match gate::by_reading(mark, fence) {
            Some(decided) => decided?,
            None => {
                // Tells what is there.
                self.mark(&self.confirm, resource).await?;
                return Err(Error::new(ErrorKind::Unexpected, "the database did not report the mark"));
            }
        }
        if raised.changed == 0 {
            // InnoDB shows what others commit before it is on the disk. A write of our own comes after it.
            self.run(&self.flush, Params::Empty).await?;
        }
        self.confirmed.note(resource, fence.token());
        Ok(())
    }
}

/// What a statement was answered with.
struct Answer {
    /// The number that it selected.
    selected: Option<i64>,
    /// The number that it remembered.
    remembered: Option<u64>,
    /// How many rows it changed.
    changed: u64,
}

async fn asked(connection: &mut Conn, sql: &str, values: Params) -> std::result::Result<Answer, Trouble> {
    let mut result = connection.exec_iter(sql, values).await.map_err(Trouble::of)?;
    let changed = result.affected_rows();
    let remembered = result.last_insert_id();
    let rows: Vec<i64> = collected(&mut result).await?;
    result.drop_result().await.map_err(Trouble::of)?;
    Ok(Answer { selected: rows.first().copied(), remembered, changed })
}

impl Gate for MySqlGate {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.decide(resource, fence).await.map_err(|error| error.during("admit")) })
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async move {
            self.mark(&self.read, resource).await.map_err(|error| error.during("read the mark"))
        })
    }
}
