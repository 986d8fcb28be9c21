//! Which connection a statement goes over, and what every connection is told first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::{Row, SimpleQueryMessage};
use tollgate_core::{Clock, Moment, OwnerId, Result};
use tollgate_sql::{Lent, Pool};

use crate::config::{PostgresConfig, TO_INSTALL};
use crate::driven::{Answer, Value};
use crate::error::{Trouble, silent, silent_at};
use crate::link::{Link, timed};
use crate::schema::{self, Tables};
use crate::statement::{Statement, Texts};

/// How long a statement may take. The longest that is normal waits for a row and then for a slow disk.
pub(crate) const TO_ANSWER: Duration = Duration::from_secs(5);
/// Longer than a function waits for what others have locked: a second for the lock's row, and one for its holder.
const BLOCKED_MOST: Duration = Duration::from_millis(2500);
/// How often what others were in the way of is tried again.
const TRIES: u32 = 5;

/// What connections that are ours alone are told. A row that somebody sits on is not waited for for ever, and that is the one
/// limit: another would end what waits for a row as if the server had trouble. Everybody must see what others have done; and a
/// table that was small when a plan was made may be large now.
const OURS: &str = "set search_path = pg_catalog, pg_temp; set lock_timeout = '500ms'; set statement_timeout = 0; set default_transaction_isolation = 'read committed'; \
                    set enable_seqscan = off; set plan_cache_mode = force_generic_plan; select pg_backend_pid()";

/// The connections of one client.
pub(crate) struct Links {
    config: PostgresConfig,
    pool: Pool<Link>,
    texts: Arc<Texts>,
    pub(crate) clock: Arc<dyn Clock>,
    /// What our connections are called in `pg_stat_activity`.
    name: String,
    /// Whether each statement may go to another server process.
    pooled: AtomicBool,
}

impl Links {
    /// Connects, finds out what is in between, and has the tables made.
    pub(crate) async fn connect(config: PostgresConfig, clock: Arc<dyn Clock>) -> Result<Self> {
        config.check()?;
        let tables = Tables::new(&config.schema, &config.table_prefix);
        let links = Self {
            pool: Pool::new(config.connections),
            texts: Arc::new(Texts::new(&tables)),
            clock,
            name: format!("tollgate {}", &OwnerId::random().to_hex()[..16]),
            pooled: AtomicBool::new(true),
            config,
        };
        let mut first = links.lend().await?;
        let mut second = links.opened().await?;
        let looked = tokio::time::timeout(TO_ANSWER, is_pooled(&mut first, &mut second)).await;
        let pooled = looked.unwrap_or_else(|_| Err(silent(TO_ANSWER)));
        let pooled = pooled.map_err(|trouble| trouble.not_done().into_error("the connection setup"))?;
        links.pooled.store(pooled, Ordering::Relaxed);
        links.introduce(&mut first).await?;
        let ownership = links.config.ownership();
        let installing = schema::install(&mut first, &tables, &ownership);
        let installed = tokio::time::timeout(TO_INSTALL, installing).await;
        installed.unwrap_or_else(|_| Err(silent_at(&links.config, TO_INSTALL)))?;
        first.give_back();
        Ok(links)
    }

    /// Whether a pooler is in between that gives each statement another server process.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// A connection for one statement.
    pub(crate) async fn lend(&self) -> Result<Lent<Link>> {
        self.pool.lend(Link::is_usable, async || self.opened().await).await
    }

    /// The same for `statement`: renewals go first.
    async fn lend_for(&self, statement: Statement) -> Result<Lent<Link>> {
        if !statement.goes_first() {
            return self.lend().await;
        }
        self.pool.lend_first(Link::is_usable, async || self.opened().await).await
    }

    async fn opened(&self) -> Result<Link> {
        let mut link = self.open(&self.config.server).await?;
        self.introduce(&mut link).await?;
        Ok(link)
    }

    /// A connection for notifications.
    pub(crate) async fn open_to_listen(&self) -> Result<Link> {
        match &self.config.listen {
            Some(server) => self.open(server).await,
            None => self.opened().await,
        }
    }

    /// Whether the connection for notifications is one like all others, so that statements may go over it.
    pub(crate) fn keeps_places_where_it_listens(&self) -> bool {
        self.config.listen.is_none() && !self.is_pooled()
    }

    /// What comes of `request` within `limit`.
    pub(crate) async fn answered<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        timed(&*self.clock, limit, request).await.1
    }

    /// Closes connections that nobody has used for longer than `age`.
    pub(crate) fn close_idle(&self, age: Duration) {
        self.pool.close_idle(age);
    }

    async fn open(&self, server: &tokio_postgres::Config) -> Result<Link> {
        let mut server = server.clone();
        server.application_name(&self.name);
        Link::open(&self.config, &server, self.texts.clone()).await
    }

    /// Tells a connection what it is for. One that others use, too, must stay as it is.
    async fn introduce(&self, link: &mut Link) -> Result<()> {
        if self.is_pooled() {
            return Ok(());
        }
        let told = tokio::time::timeout(TO_ANSWER, link.simple(OURS)).await;
        let answer = told.unwrap_or_else(|_| Err(silent(TO_ANSWER)));
        let answer = answer.map_err(|trouble| trouble.not_done().into_error("the connection setup"))?;
        link.process = first_number(&answer);
        Ok(())
    }

    /// Runs a statement that may be repeated, and answers when it was sent last.
    pub(crate) async fn run(&self, statement: Statement, values: &[Value<'_>]) -> Result<(Moment, Vec<Row>)> {
        let mut link = self.lend_for(statement).await?;
        let (sent, answer) = self.run_on(&mut link, statement, values).await;
        let rows = self.settled(link, answer).map_err(|trouble| trouble.into_error(what(statement)))?;
        Ok((sent, rows))
    }

    /// Runs a statement over `link`. What PostgreSQL says it did not do, because others were in the way, is tried again.
    pub(crate) async fn run_on(
        &self,
        link: &mut Link,
        statement: Statement,
        values: &[Value<'_>],
    ) -> (Moment, std::result::Result<Vec<Row>, Trouble>) {
        let mut tries = 1;
        loop {
            let (sent, answer) = if self.is_pooled() {
                timed(&*self.clock, TO_ANSWER, link.run_unnamed(statement, values)).await
            } else {
                timed(&*self.clock, TO_ANSWER, link.run(statement, values)).await
            };
            match answer {
                Err(trouble) if trouble.is_of_a_pooler() => self.pooled.store(true, Ordering::Relaxed),
                Err(trouble) if trouble.is_passing() && tries < TRIES => {
                    tokio::time::sleep(Duration::from_millis(u64::from(tries) * 5)).await;
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
            // A server that takes no writes any more is not asked again: another one does.
            Err(trouble) if !trouble.is_answer() || trouble.is_of_a_reader() => drop(link),
            _ => link.give_back(),
        }
        answer
    }

    /// Makes sure that PostgreSQL executes nothing more of what was sent to `process`.
    pub(crate) async fn end(&self, process: Option<i32>) -> Result<()> {
        let Some(process) = process else {
            // Nobody knows which server process it went to. Whatever it was waits for a row at most.
            tokio::time::sleep(BLOCKED_MOST).await;
            return Ok(());
        };
        loop {
            let (_, rows) = self.run(Statement::Terminate, &[&process, &self.name]).await?;
            if rows.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Closes them all.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

/// Whether two statements of one connection may be executed by different server processes, as with PgBouncer's transaction
/// pooling: then a second connection's transaction keeps the first one's process to itself.
async fn is_pooled(first: &mut Link, second: &mut Link) -> std::result::Result<bool, Trouble> {
    const WHO: &str = "select pg_catalog.pg_backend_pid()";
    let before = first_number(&first.simple(WHO).await?);
    let other = first_number(&second.simple(&format!("begin; {WHO}")).await?);
    let after = first_number(&first.simple(WHO).await?);
    second.simple("rollback").await?;
    Ok(before != after || before == other)
}

fn first_number(messages: &[SimpleQueryMessage]) -> Option<i32> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}

/// What a statement is to whoever asked for it.
pub(crate) fn what(statement: Statement) -> &'static str {
    match statement {
        Statement::Take | Statement::Acquire | Statement::Refresh | Statement::Keep => "the acquire",
        Statement::Leave | Statement::Release => "the release",
        Statement::Renew | Statement::RenewTogether | Statement::ExtendBeside => "the renewal",
        Statement::Revoke => "breaking the lock",
        Statement::Floor => "raising the floor",
        _ => "the request",
    }
}
