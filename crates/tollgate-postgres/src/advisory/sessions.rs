//! The connections of one client: those that wait for a lock to hang on them, and one for everything else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tollgate_core::{Error, ErrorKind, Result};
use tollgate_sql::within;

use super::session::{Place, Session, pooler};
use super::texts::Texts;
use crate::config::{PostgresConfig, TO_INSTALL};
use crate::driven::Value;
use crate::error::{Trouble, silent, silent_at};
use crate::ownership::{LOOK, Ownership, Stranger};
use crate::plain;
use crate::pooled::is_pooled;

/// How long a statement that does not wait for a lock may take.
pub(super) const TO_ANSWER: Duration = Duration::from_secs(5);
/// What the table's comment says if everything is there.
const INSTALLED: &str = "tollgate advisory 3";
/// How many connections that nobody needs are kept, and how long the others are.
const KEPT: (usize, Duration) = (2, Duration::from_secs(10));

/// For how long a connection is believed to be there without a look.
const FRESH: Duration = Duration::from_millis(5);

/// The connections.
pub(super) struct Sessions {
    config: PostgresConfig,
    pub(super) texts: Arc<Texts>,
    /// The one that was used last comes last.
    idle: Mutex<Vec<(Session, Instant)>>,
    /// For looking, and for ending what hangs.
    desk: tokio::sync::Mutex<Option<Session>>,
    closed: AtomicBool,
}

impl Sessions {
    /// Connects, and has what is missing made.
    pub(super) async fn connect(config: PostgresConfig, texts: Texts) -> Result<Self> {
        refuse_a_pooler(&config).await?;
        let sessions = Self {
            config,
            texts: Arc::new(texts),
            idle: Mutex::default(),
            desk: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
        };
        sessions.install().await?;
        Ok(sessions)
    }

    async fn install(&self) -> Result<()> {
        let table =
            self.texts.seen.split_whitespace().find(|word| word.contains("sessions")).unwrap_or_default();
        let comment = "select pg_catalog.obj_description(pg_catalog.to_regclass($1), 'pg_class')";
        let ownership = self.config.ownership();
        self.judge(&ownership).await?;
        let there = self.ask(comment, &[(&table, Type::TEXT)]).await?;
        if there.first().and_then(|row| row.get::<_, Option<&str>>(0)) == Some(INSTALLED) {
            return Ok(());
        }
        // The schema first: once its owner is known, no other role can put anything into it.
        self.make(ownership.create()).await?;
        self.judge(&ownership).await?;
        // Several statements in one request are one transaction.
        self.make(&self.texts.install).await?;
        self.judge(&ownership).await
    }

    /// Refuses what belongs to others.
    async fn judge(&self, ownership: &Ownership) -> Result<()> {
        ownership.judge(Stranger::of(&self.ask(LOOK, &ownership.values()).await?))
    }

    async fn make(&self, script: &str) -> Result<()> {
        let mut desk = self.desk.lock().await;
        let Some(session) = desk.as_mut() else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the connection to PostgreSQL was lost; try again",
            ));
        };
        match answered(TO_INSTALL, session.simple(script)).await {
            Ok(_) => Ok(()),
            Err(trouble) if trouble.is_denied() => {
                let message = format!(
                    "this user may not create what advisory locks need in schema {0}; let a user with that \
                     right run what `tollgate sql-schema URL` prints, and grant usage on schema {0} and \
                     all on its objects",
                    self.config.schema
                );
                Err(trouble.into_error_of(ErrorKind::Denied, message))
            }
            Err(trouble) => Err(trouble.into_error("creating the tables")),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Session, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for one lock.
    pub(super) async fn lend(&self) -> Result<Session> {
        loop {
            let Some((mut session, since)) = self.idle().pop() else { break };
            if since.elapsed() < FRESH || session.is_usable() {
                return Ok(session);
            }
        }
        let mut session = Session::open(&self.config, &self.texts).await?;
        let woken = answered(TO_ANSWER, session.simple(&self.texts.wake)).await;
        woken.map_err(|trouble| trouble.not_done().into_error("the connection setup"))?;
        Ok(session)
    }

    /// Takes a connection back on which nothing hangs, and of which nothing is written down.
    pub(super) fn take_back(&self, session: Session) {
        if !self.closed.load(Ordering::Relaxed) {
            self.idle().push((session, Instant::now()));
        }
    }

    /// Closes connections that nobody has needed for a while, and tells whether there will be more of them.
    pub(super) fn trim(&self) -> bool {
        let (most, long) = KEPT;
        let mut idle = self.idle();
        let unused = idle.iter().take_while(|(_, since)| since.elapsed() > long).count();
        let surplus = unused.min(idle.len().saturating_sub(most));
        idle.drain(..surplus);
        idle.len() > most
    }

    /// Runs a statement that may be repeated, and on which no lock hangs.
    pub(super) async fn ask(&self, sql: &str, values: &[(Value<'_>, Type)]) -> Result<Vec<Row>> {
        let mut desk = self.desk.lock().await;
        if !desk.as_mut().is_some_and(Session::is_usable) {
            *desk = Some(Session::open(&self.config, &self.texts).await?);
        }
        let Some(session) = desk.as_mut() else { return Err(silent(TO_ANSWER).into_error("the request")) };
        let answer = answered(TO_ANSWER, session.ask(sql, values)).await;
        if answer.as_ref().is_err_and(|trouble| !trouble.is_answer()) {
            *desk = None;
        }
        answer.map_err(|trouble| trouble.into_error("the request"))
    }

    /// Has whatever the connection at `place` waits for fail.
    pub(super) async fn cancel(&self, place: &Place) -> Result<()> {
        let values: [(Value<'_>, Type); 2] = [(&place.process, Type::INT4), (&&*place.label, Type::TEXT)];
        self.ask(self.texts.cancel, &values).await.map(drop)
    }

    /// Makes sure that the connection at `place` is no more, and no lock hangs on it.
    pub(super) async fn end(&self, place: &Place) -> Result<()> {
        let values: [(Value<'_>, Type); 2] = [(&place.process, Type::INT4), (&&*place.label, Type::TEXT)];
        while !self.ask(self.texts.end, &values).await?.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Closes those on which nothing hangs.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.idle().clear();
        *self.desk.lock().await = None;
    }
}

/// What comes of `request` within `limit`.
pub(super) async fn answered<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    within(limit, request).await.unwrap_or_else(|| Err(silent(limit)))
}

async fn refuse_a_pooler(config: &PostgresConfig) -> Result<()> {
    let one = plain::connect(config, &config.server).await?;
    let other = plain::connect(config, &config.server).await?;
    let looking = async {
        is_pooled(&one, &other)
            .await
            .map_err(|error| Trouble::of(error).not_done().into_error("the connection setup"))
    };
    let looked = tokio::time::timeout(TO_ANSWER, looking).await;
    let pooled = looked.unwrap_or_else(|_| Err(silent_at(config, TO_ANSWER)))?;
    if pooled { Err(pooler()) } else { Ok(()) }
}
