//! One connection that a lock can hang on, driven by whoever uses it.

use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Config, Row, SimpleQueryMessage, SimpleQueryRow, Statement};
use tollgate_core::{Error, ErrorKind, OwnerId, Result, Token};
use tollgate_sql::within;

use super::sessions::TO_ANSWER;
use super::socket::{Socket, Stream};
use super::texts::{STEPS, Step, Texts};
use crate::config::PostgresConfig;
use crate::dial::dial_over;
use crate::driven::{Driven, Value};
use crate::error::{Trouble, silent_at};

/// Where a connection ends at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The server's process.
    pub(super) process: i32,
    /// What it is called there. No other one ever is.
    pub(super) label: Arc<str>,
}

/// What came of asking for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    In {
        token: i64,
        waited: bool,
    },
    Busy,
    /// It was another connection's process that was asked: a pooler is in between.
    ByAnother,
}

/// A connection.
pub(super) struct Session {
    connection: Driven,
    stream: Arc<Stream>,
    texts: Arc<Texts>,
    prepared: [Option<Statement>; STEPS],
    place: Place,
    /// Whether a notification under its own name reaches it.
    listens: bool,
}

impl Session {
    /// Connects to the server of the URL that takes writes.
    pub(super) async fn open(config: &PostgresConfig, texts: &Arc<Texts>) -> Result<Self> {
        let label = format!("tollgate session {}", &OwnerId::random().to_hex()[..16]);
        let mut server: Config = config.server.clone();
        server.application_name(&label);
        let opening = dial_over(config, &server, |carrier| {
            let stream = Arc::new(Stream::try_from(carrier)?);
            Ok((Socket::new(stream.clone()), stream))
        });
        let (connection, stream) = opening.await?;
        let place = Place { process: 0, label: label.into() };
        let prepared = Default::default();
        let mut session = Self { connection, stream, texts: texts.clone(), prepared, place, listens: false };
        let introduced = within(TO_ANSWER, session.introduce()).await;
        introduced.unwrap_or_else(|| Err(silent_at(config, TO_ANSWER)))?;
        Ok(session)
    }

    async fn introduce(&mut self) -> Result<()> {
        let texts = self.texts.clone();
        let failed = |trouble: Trouble| trouble.not_done().into_error("the connection setup");
        let answer = self.simple(texts.introduce).await.map_err(failed)?;
        let last = answer.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let yes = |row: &SimpleQueryRow, column| Some(row.get(column)? == "t");
        let said = last.and_then(|row| Some((row.get(0)?.parse().ok()?, yes(row, 1)?, yes(row, 2)?)));
        let (process, in_recovery, is_lent) = said
            .ok_or_else(|| Error::new(ErrorKind::Unexpected, "PostgreSQL did not report its process id"))?;
        if in_recovery {
            let message = "this PostgreSQL accepts no writes: it is a replica; name the primary";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        if is_lent {
            return Err(pooler());
        }
        let name = format!("select set_config('tollgate_session.label', '{}', false)", self.place.label);
        self.simple(&name).await.map_err(failed)?;
        self.place.process = process;
        Ok(())
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// What the system knows of it, for those who watch.
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether it is still there, as far as can be told without asking. Reads what came unasked.
    pub(super) fn is_usable(&mut self) -> bool {
        if self.stream.stirs() { self.connection.is_usable() } else { !self.connection.has_ended() }
    }

    /// Takes a lock, at once or in its turn.
    pub(super) async fn take(&mut self, step: Step, name: &str) -> Result<Taken, Trouble> {
        let label = self.place.label.clone();
        let rows = self.run(step, &[&name, &&*label]).await?;
        Ok(match rows.first().and_then(|row| row.get::<_, Option<i64>>(0)) {
            None => Taken::Busy,
            Some(0) => Taken::ByAnother,
            Some(number) => Taken::In { token: number.abs(), waited: number < 0 },
        })
    }

    /// Gives back whatever was taken. Answers whether that was its own to give.
    pub(super) async fn give_back(&mut self) -> Result<bool, Trouble> {
        let label = self.place.label.clone();
        Ok(!self.run(Step::Release, &[&&*label]).await?.is_empty())
    }

    /// Asks for nothing.
    pub(super) async fn ping(&mut self) -> Result<(), Trouble> {
        self.simple("").await.map(drop)
    }

    /// Has notifications under its own name sent to it, from now on and for every later lock.
    pub(super) async fn listen(&mut self) -> Result<(), Trouble> {
        if !self.listens {
            let listen = format!("listen \"{}\"", self.place.label);
            self.ask(&listen, &[]).await?;
            self.listens = true;
        }
        Ok(())
    }

    /// Runs statements without values.
    pub(super) async fn simple(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, Trouble> {
        self.connection.simple(sql).await
    }

    /// Runs one statement that is not prepared.
    pub(super) async fn ask(&mut self, sql: &str, values: &[(Value<'_>, Type)]) -> Result<Vec<Row>, Trouble> {
        self.connection.unnamed(sql, values).await
    }

    async fn run(&mut self, step: Step, values: &[Value<'_>]) -> Result<Vec<Row>, Trouble> {
        let Self { connection, texts, prepared, .. } = self;
        let types: &[Type] = if step == Step::Release { &[Type::TEXT] } else { &[Type::TEXT, Type::TEXT] };
        connection.prepared(&mut prepared[step as usize], texts.of(step), types, values).await
    }
}

/// What whoever comes through a pooler is told.
pub(super) fn pooler() -> Error {
    Error::new(
        ErrorKind::Config,
        "a pooler in between, such as PgBouncer, gives one server process to several connections in turn, \
         and its advisory locks with it: the next connection would own the lock. Connect directly, set \
         the pooler to session pooling, or leave out ?style=advisory: leases work through it",
    )
}

/// The token that the sequence gave.
pub(super) fn token(number: i64) -> Result<Token> {
    Ok(Token::new(number.unsigned_abs())?)
}
