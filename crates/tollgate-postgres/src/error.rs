//! What PostgreSQL says when it does not do what it was asked, and what that means for a lock.

use std::time::Duration;

use tokio_postgres::error::{DbError, Severity, SqlState};
use tollgate_core::{Error, ErrorKind};

use crate::config::PostgresConfig;
use crate::screen::Flaw;

/// An answer that is not read to its end.
const OVERLONG: &str =
    "the server's answer is longer than any valid answer to this request, and was not read";

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

    /// Whether this server takes no writes.
    pub(crate) fn is_of_a_reader(&self) -> bool {
        self.has_code(&[SqlState::READ_ONLY_SQL_TRANSACTION])
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
        let is_overlong = self.source.as_ref().and_then(Flaw::of) == Some(Flaw::Overlong);
        let (kind, message) = match (self.code(), self.not_done) {
            (None, true) if is_overlong => {
                (ErrorKind::Config, format!("{OVERLONG}; {what} did not take effect"))
            }
            (None, false) if is_overlong => {
                (ErrorKind::Indeterminate, format!("{OVERLONG}; {what} may have taken effect"))
            }
            (Some(code), true) => of_code(code, what),
            (None, true) => {
                (ErrorKind::Unavailable, format!("PostgreSQL is unreachable: {what} did not take effect"))
            }
            (_, false) => (
                ErrorKind::Indeterminate,
                self.message.clone().unwrap_or_else(|| {
                    format!(
                        "the connection to PostgreSQL ended before its answer; {what} may have taken effect"
                    )
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
            // No answer came in time.
            None => error.of_overload(),
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
    let message = format!("PostgreSQL did not answer within {limit:.1?}; the request may have been executed");
    Trouble { source: None, message: Some(message), not_done: false }
}

/// No connection came about within `limit`.
pub(crate) fn silent_at(config: &PostgresConfig, limit: Duration) -> Error {
    let message = format!(
        "the PostgreSQL at {} did not answer within {limit:?}; is it a PostgreSQL, and is it running?",
        config.address()
    );
    Error::new(ErrorKind::Unavailable, message).of_overload()
}

fn of_code(code: &SqlState, what: &str) -> (ErrorKind, String) {
    let class = &code.code()[..2];
    match (class, code.code()) {
        (_, "TG001") => (
            ErrorKind::Config,
            "the default isolation level of this database is above READ COMMITTED, and a pooler prevents \
             tollgate from setting it; set default_transaction_isolation to 'read committed' for this \
             user (ALTER ROLE … SET …)"
                .to_owned(),
        ),
        (_, "22P05" | "22021") => (
            ErrorKind::Config,
            "the encoding of this database lacks characters of this name; use names that it can encode, or \
             a UTF8 database"
                .to_owned(),
        ),
        (_, "2200H") => {
            (ErrorKind::Unexpected, "the sequence has no tokens left; use another ?schema=".to_owned())
        }
        (_, "25006") => (
            ErrorKind::Unavailable,
            "this PostgreSQL accepts no writes now: it is a standby, or was made read-only; name the \
             primary"
                .to_owned(),
        ),
        (_, "42501") => (
            ErrorKind::Denied,
            format!(
                "this user lacks the right for this ({what}); grant usage on the schema of locks, and all \
                 on its objects"
            ),
        ),
        (_, "42P01" | "42883" | "3F000" | "42703") => (
            ErrorKind::Config,
            "the lock tables are missing or do not match this version; connect again to create them, or \
             run what `tollgate sql-schema URL` prints"
                .to_owned(),
        ),
        (_, "55P03") => (
            ErrorKind::Unavailable,
            format!("another transaction holds the row lock of this lock; {what} did not take effect"),
        ),
        (_, "57014") => (
            ErrorKind::Unavailable,
            format!(
                "PostgreSQL cancelled {what}: a user cancelled it, or statement_timeout is too short for \
                 it; set that to 5 s or more for this user (ALTER ROLE … SET …)"
            ),
        ),
        ("28", _) => {
            (ErrorKind::Denied, "PostgreSQL refused the user or the password; correct the URL".to_owned())
        }
        ("40", _) => (
            ErrorKind::Unavailable,
            format!("conflicts with other transactions outlasted all retries; {what} did not take effect"),
        ),
        ("53", _) => (
            ErrorKind::Unavailable,
            format!(
                "PostgreSQL has exhausted a resource (disk, memory, connections); {what} did not take \
                 effect"
            ),
        ),
        ("57" | "08", _) => (
            ErrorKind::Unavailable,
            format!("PostgreSQL is shutting down or starting; {what} did not take effect"),
        ),
        ("58" | "XX", _) => (
            ErrorKind::Unavailable,
            format!("PostgreSQL reports an internal error; {what} did not take effect"),
        ),
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
                        "the PostgreSQL at {address} requires encrypted connections; add ?sslmode=require \
                         to the URL"
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
                    "the PostgreSQL at {address} has no connections left; raise max_connections, or use \
                     fewer elsewhere"
                ),
            ),
            _ => (ErrorKind::Unavailable, format!("the PostgreSQL at {address} accepts no connections now")),
        },
        None if Flaw::of(&error) == Some(Flaw::Cleartext) => (
            ErrorKind::Denied,
            format!(
                "the server at {address} asks for the password in clear text over an unencrypted \
                 connection, and the password is not sent. Encrypt with ?sslmode=require, have the server \
                 use scram-sha-256, or add ?plain_password=allow to the URL if this network is private"
            ),
        ),
        None if is_of_tls(&error) => (
            ErrorKind::Config,
            format!(
                "the TLS handshake with {address} failed: the server does not speak TLS, or its \
                 certificate is not trusted; name the authority that signed it with ?ca=FILE"
            ),
        ),
        None if error.to_string().contains("password missing")
            || error.to_string().contains("invalid configuration") =>
        {
            (
                ErrorKind::Denied,
                format!(
                    "the PostgreSQL at {address} requires a password; write \
                     postgres://USER:PASSWORD@HOST/DATABASE"
                ),
            )
        }
        None => return unreachable(config, error),
    };
    let has_no_room = error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS);
    let told = Error::new(kind, message).caused_by(error);
    if has_no_room { told.of_overload() } else { told }
}

/// Nothing that speaks PostgreSQL's protocol was reached.
pub(crate) fn unreachable(
    config: &PostgresConfig,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    let message =
        format!("no PostgreSQL answers at {}; is it running, and is the address right?", config.address());
    Error::new(ErrorKind::Unavailable, message).caused_by(error)
}

/// A server answered that takes no writes.
pub(crate) fn only_reads(config: &PostgresConfig) -> Error {
    let message = format!(
        "the PostgreSQL at {} accepts no writes now: it is a standby, or was made read-only; name the \
         primary",
        config.address()
    );
    Error::new(ErrorKind::Unavailable, message)
}

fn db_message(error: &tokio_postgres::Error) -> &str {
    error.as_db_error().map_or("", |error| error.message())
}

/// Whether no encrypted connection was to be had.
pub(crate) fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string().contains("TLS")
}
