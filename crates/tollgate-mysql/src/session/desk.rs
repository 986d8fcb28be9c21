//! The connections of one client: those that wait for a lock to hang on them, and one for everything else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mysql_async::{Row, ServerError};
use tokio::runtime::{Handle, Id};
use tollgate_core::{Error, ErrorKind, Keeper, Result};

use super::connection::{Connection, Texts};
use super::view::hex;
use crate::config::MySqlConfig;
use crate::error::{Trouble, silent, silent_at};
use crate::place::Place;
use crate::schema::{self, Tables};
use crate::wire::queried;

/// How long a statement that does not wait for a lock may take.
pub(super) const TO_ANSWER: Duration = Duration::from_secs(5);
/// How many connections that nobody needs are kept, and how long the others are.
const KEPT: (usize, Duration) = (2, Duration::from_secs(10));
/// What the server says of a connection that it does not have.
const UNKNOWN_THREAD: u16 = 1094;
/// What it says of one that this user may not end.
const OF_ANOTHER_USER: u16 = 1095;

/// The connections.
pub(super) struct Desk {
    config: MySqlConfig,
    pub(super) texts: Arc<Texts>,
    /// The one that was used last comes last. Each belongs to the runtime that opened it.
    idle: Mutex<Vec<(Connection, Id, Instant)>>,
    /// For looking, and for ending what hangs. It belongs to the keeper.
    looking: Arc<tokio::sync::Mutex<Option<Connection>>>,
    keeper: Keeper,
    closed: AtomicBool,
}

impl Desk {
    /// Connects, and has what is missing made.
    pub(super) async fn connect(config: MySqlConfig) -> Result<Self> {
        config.check()?;
        let tables = Tables::new(&config.table_prefix);
        let wanted = config.dialect;
        let unknown = Texts::new(&tables, wanted.unwrap_or(crate::config::Dialect::MariaDb));
        let mut first = Connection::open(&config, &Arc::new(unknown)).await?;
        let installing = schema::install(first.driver(), &tables, &config);
        let installed = tokio::time::timeout(schema::PATIENCE, installing).await;
        let dialect = installed.unwrap_or_else(|_| Err(silent_at(&config, schema::PATIENCE)))?;
        Ok(Self {
            texts: Arc::new(Texts::new(&tables, dialect)),
            config,
            idle: Mutex::default(),
            looking: Arc::default(),
            keeper: Keeper::global()?,
            closed: AtomicBool::new(false),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Connection, Id, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of this runtime for one lock.
    pub(super) async fn lend(&self) -> Result<Connection> {
        let here = Handle::current().id();
        let found = {
            let mut idle = self.idle();
            idle.iter().rposition(|(_, runtime, _)| *runtime == here).map(|at| idle.remove(at).0)
        };
        match found {
            Some(connection) => Ok(connection),
            None => {
                let mut connection = Connection::open(&self.config, &self.texts).await?;
                connection.wake().await?;
                Ok(connection)
            }
        }
    }

    /// Takes a connection back on which nothing hangs, and of which nothing is written down.
    pub(super) fn take_back(&self, connection: Connection, runtime: Id) {
        if !self.closed.load(Ordering::Relaxed) {
            self.idle().push((connection, runtime, Instant::now()));
        }
    }

    /// Closes connections that nobody has needed for a while, and tells whether there will be more of them.
    pub(super) fn trim(&self) -> bool {
        let (most, long) = KEPT;
        let mut idle = self.idle();
        let unused = idle.iter().take_while(|(.., since)| since.elapsed() > long).count();
        let surplus = unused.min(idle.len().saturating_sub(most));
        idle.drain(..surplus);
        idle.len() > most
    }

    /// Runs a statement that may be repeated, and on which no lock hangs: on the keeper, which no caller can block.
    pub(super) async fn ask(&self, sql: String) -> Result<Vec<Row>> {
        let (place, config, texts) = (self.looking.clone(), self.config.clone(), self.texts.clone());
        let asked = self.keeper.spawn(async move {
            let mut place = place.lock().await;
            loop {
                if place.is_none() {
                    *place = Some(Connection::open(&config, &texts).await?);
                }
                let Some(connection) = place.as_mut() else { continue };
                let was_used = connection.was_used();
                let asking = async { queried(connection.driver(), &sql).await };
                let answer =
                    tokio::time::timeout(TO_ANSWER, asking).await.unwrap_or_else(|_| Err(silent(TO_ANSWER)));
                connection.note_use();
                if answer.as_ref().is_err_and(|trouble| !trouble.is_answer()) {
                    *place = None;
                }
                // It was closed while nobody used it.
                if was_used && answer.as_ref().is_err_and(Trouble::is_of_connection) {
                    continue;
                }
                return answer.map_err(|trouble| trouble.into_error("the request"));
            }
        });
        asked.await.unwrap_or_else(|_| Err(silent(TO_ANSWER).into_error("the request")))
    }

    /// Has whatever a connection waits for fail.
    pub(super) async fn cancel(&self, place: &Place) -> Result<()> {
        // One that is gone waits for nothing.
        match self.is_there(place).await? {
            true => self.ask(format!("kill query {}", place.id)).await.map(drop).or_else(unless_gone),
            false => Ok(()),
        }
    }

    /// Makes sure that a connection is no more, and no lock hangs on it.
    pub(super) async fn end(&self, place: &Place) -> Result<()> {
        while self.is_there(place).await? {
            self.ask(format!("kill connection {}", place.id)).await.map(drop).or_else(unless_gone)?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn is_there(&self, place: &Place) -> Result<bool> {
        let (id, host) = (place.id, hex(place.host.as_bytes()));
        let question =
            format!("select 1 from information_schema.processlist where id = {id} and host = x'{host}'");
        Ok(!self.ask(question).await?.is_empty())
    }

    /// Where the connection with this number ends.
    pub(super) async fn place_of(&self, id: u32) -> Result<Option<Place>> {
        let rows =
            self.ask(format!("select host from information_schema.processlist where id = {id}")).await?;
        Ok(rows.first().and_then(|row| row.get(0)).map(|host| Place { id, host }))
    }

    /// Closes those on which nothing hangs.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.idle().clear();
        *self.looking.lock().await = None;
    }
}

/// A connection that is gone cannot be ended: that is what was wanted.
fn unless_gone(error: Error) -> Result<()> {
    let said = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<ServerError>());
    match said.map(|said| said.code) {
        Some(UNKNOWN_THREAD) => Ok(()),
        Some(OF_ANOTHER_USER) => Err(may_not_end().caused_by(error)),
        _ => Err(error),
    }
}

/// What a user is told that cannot put a holder out.
pub(super) fn may_not_end() -> Error {
    Error::new(
        ErrorKind::Denied,
        "the connection belongs to another user: only that user may end it, or a user with the privileges \
         PROCESS and CONNECTION ADMIN; if this was to break a lock, its holder was asked to leave",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_end_what_is_gone_is_no_failure() {
        let said = |code| {
            let error = ServerError { code, message: "Unknown thread id: 7".into(), state: "HY000".into() };
            Trouble::of(mysql_async::Error::Server(error)).into_error("the request")
        };
        assert!(unless_gone(said(UNKNOWN_THREAD)).is_ok());
        let refused = unless_gone(said(OF_ANOTHER_USER)).expect_err("it is there, and another user's");
        assert_eq!(refused.kind(), ErrorKind::Denied);
    }
}
