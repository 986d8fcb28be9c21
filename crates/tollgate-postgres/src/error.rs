//! What PostgreSQL says when it does not do what it was asked, and what that means for a lock.

use std::time::Duration;

use tokio_postgres::error::{DbError, Severity, SqlState};
use tollgate_core::{Error, ErrorKind};

use crate::config::PostgresConfig;

/// A statement that failed.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// What the server or the driver said; nothing if nobody said anything.
    source: Option<tokio_postgres::Error>,
    message: Option<String>,
    /// Whether it was surely not done.
    not_done: bool,
}

impl Trouble {
    /// An answer that is an error says that nothing was done. Everything else says nothing; nor do a server process's last
    /// words, which may come after it has committed.
    pub(crate) fn of(error: tokio_postgres::Error) -> Self {
        let not_done = is_answer(&error);
        Self { source: Some(error), message: None, not_done }
    }

    /// What the server or the driver said.
    pub(crate) fn said(&self) -> Option<&tokio_postgres::Error> {
        self.source.as_ref()
    }

    /// The same, of something that does nothing by itself.
    pub(crate) fn not_done(mut self) -> Self {
        self.not_done = true;
        self
    }

    /// Whether it is what the server answered, so that nothing more comes.
    pub(crate) fn is_answer(&self) -> bool {
        self.source.as_ref().is_some_and(is_answer)
    }

    fn code(&self) -> Option<&SqlState> {
        self.source.as_ref()?.code()
    }

    fn has_code(&self, codes: &[SqlState]) -> bool {
        self.code().is_some_and(|code| codes.contains(code))
    }

    /// Whether it was not done and may well be if it is tried again at once.
    pub(crate) fn is_passing(&self) -> bool {
        self.has_code(&[SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED])
    }

    /// Whether somebody sits on the row.
    pub(crate) fn is_blocked(&self) -> bool {
        self.has_code(&[SqlState::LOCK_NOT_AVAILABLE])
    }

    /// Whether there are no such tables or functions.
    pub(crate) fn is_missing(&self) -> bool {
        self.has_code(&[
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_FUNCTION,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::UNDEFINED_COLUMN,
        ])
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.has_code(&[SqlState::INSUFFICIENT_PRIVILEGE])
    }

    /// Whether the server process does not know our prepared statements: a pooler gave us another.
    pub(crate) fn is_of_a_pooler(&self) -> bool {
        self.has_code(&[SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT])
    }

    /// What the caller is told of `what`, which was asked for.
    pub(crate) fn into_error(self, what: &str) -> Error {
        let (kind, message) = match (self.code(), self.not_done) {
            (Some(code), true) => of_code(code, what),
            (None, true) => (ErrorKind::Unavailable, format!("PostgreSQL is away: {what} was not asked for")),
            (_, false) => (
                ErrorKind::Indeterminate,
                self.message.clone().unwrap_or_else(|| {
                    format!("the connection to PostgreSQL ended before it answered; {what} may have been done or not")
                }),
            ),
        };
        self.into_error_of(kind, message)
    }

    /// The same in other words.
    pub(crate) fn into_error_of(self, kind: ErrorKind, message: String) -> Error {
        let error = Error::new(kind, message);
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

/// Whether a server process said it and goes on. Its last words are no answer: it may have committed before.
fn is_answer(error: &tokio_postgres::Error) -> bool {
    let is_last =
        |error: &DbError| matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    error.as_db_error().is_some_and(|error| !is_last(error))
}

/// No answer came in time.
pub(crate) fn silent(limit: Duration) -> Trouble {
    let message =
        format!("PostgreSQL did not answer within {limit:?}; what was asked for may have been done or not");
    Trouble { source: None, message: Some(message), not_done: false }
}

/// No connection came about within `limit`.
pub(crate) fn silent_at(config: &PostgresConfig, limit: Duration) -> Error {
    let message = format!(
        "the PostgreSQL at {} did not answer within {limit:?}; is it one, and does it run?",
        config.address()
    );
    Error::new(ErrorKind::Unavailable, message)
}

fn of_code(code: &SqlState, what: &str) -> (ErrorKind, String) {
    let class = &code.code()[..2];
    match (class, code.code()) {
        (_, "TG001") => (
            ErrorKind::Config,
            "this database's transactions are above READ COMMITTED unless said otherwise, and a pooler keeps us from saying \
             so; set default_transaction_isolation to 'read committed' for this user (ALTER ROLE … SET …)"
                .to_owned(),
        ),
        (_, "22P05" | "22021") => (
            ErrorKind::Config,
            "the encoding of this database does not have all characters of that name; use names it has, or a database in UTF8"
                .to_owned(),
        ),
        (_, "2200H") => (ErrorKind::Unexpected, "no tokens are left in the sequence; use another ?schema=".to_owned()),
        (_, "25006") => (
            ErrorKind::Unavailable,
            "this PostgreSQL takes no writes now: it is a standby, or was made read-only; name the primary".to_owned(),
        ),
        (_, "42501") => (
            ErrorKind::Denied,
            format!("this user may not do that ({what}); grant usage on the schema of locks, and all on what is in it"),
        ),
        (_, "42P01" | "42883" | "3F000" | "42703") => (
            ErrorKind::Config,
            "the tables of locks are gone or others than expected; connect again to have them made, or run what \
             `tollgate sql-schema URL` prints"
                .to_owned(),
        ),
        (_, "55P03") => (
            ErrorKind::Unavailable,
            format!("somebody's transaction sits on the row of this lock; {what} was not done"),
        ),
        (_, "57014") => (
            ErrorKind::Unavailable,
            format!(
                "PostgreSQL ended {what} before it was done: somebody canceled it, or statement_timeout is too short for it; set \
                 that to 5 s or more for this user (ALTER ROLE … SET …)"
            ),
        ),
        ("28", _) => (ErrorKind::Denied, "PostgreSQL refused the user or the password; correct the URL".to_owned()),
        ("40", _) => (ErrorKind::Unavailable, format!("others were in the way again and again; {what} was not done")),
        ("53", _) => (
            ErrorKind::Unavailable,
            format!("PostgreSQL has run out of something (disk, memory, connections); {what} was not done"),
        ),
        ("57" | "08", _) => (ErrorKind::Unavailable, format!("PostgreSQL is going down or starting; {what} was not done")),
        ("58" | "XX", _) => (ErrorKind::Unavailable, format!("PostgreSQL has trouble of its own; {what} was not done")),
        _ => (ErrorKind::Unexpected, format!("PostgreSQL refused {what}")),
    }
}

/// No connection came about.
pub(crate) fn of_connect(error: tokio_postgres::Error, config: &PostgresConfig) -> Error {
    let address = config.address();
    let (kind, message) = match error.code() {
        Some(code) => match code.code() {
            "28000"
                if error.to_string().contains("encryption")
                    || db_message(&error).contains("no encryption") =>
            {
                (
                    ErrorKind::Denied,
                    format!(
                        "the PostgreSQL at {address} wants encrypted connections; add ?sslmode=require to the URL"
                    ),
                )
            }
            "28P01" | "28000" => (
                ErrorKind::Denied,
                format!("the PostgreSQL at {address} refused the user or the password; correct the URL"),
            ),
            "3D000" => (
                ErrorKind::Config,
                format!("there is no such database at {address}; create it, or correct the URL"),
            ),
            "53300" => (
                ErrorKind::Unavailable,
                format!(
                    "the PostgreSQL at {address} has no connections left; raise max_connections, or use fewer elsewhere"
                ),
            ),
            _ => (ErrorKind::Unavailable, format!("the PostgreSQL at {address} takes no connections now")),
        },
        None if is_of_reading(&error) => (
            ErrorKind::Unavailable,
            format!(
                "the PostgreSQL at {address} takes no writes now: it is a standby, or was made read-only; name the primary"
            ),
        ),
        None if is_of_tls(&error) => (
            ErrorKind::Config,
            format!(
                "no encrypted connection to {address} came about: the server speaks no TLS, or its certificate is not \
                 trusted; name who signed it with ?ca=FILE"
            ),
        ),
        None if error.to_string().contains("password missing")
            || error.to_string().contains("invalid configuration") =>
        {
            (
                ErrorKind::Denied,
                format!(
                    "the PostgreSQL at {address} wants a password; write postgres://USER:PASSWORD@HOST/DATABASE"
                ),
            )
        }
        None => (
            ErrorKind::Unavailable,
            format!("no PostgreSQL answers at {address}; is it running, and is the address right?"),
        ),
    };
    Error::new(kind, message).caused_by(error)
}

fn db_message(error: &tokio_postgres::Error) -> &str {
    error.as_db_error().map_or("", |error| error.message())
}

/// Whether whoever was asked for takes writes, and nobody who answered does.
fn is_of_reading(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    cause.contains("does not allow writes")
}

fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string().contains("TLS")
}
