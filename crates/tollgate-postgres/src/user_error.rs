//! What PostgreSQL says within a user's own transaction, in the words of the contract.

use tokio_postgres::error::SqlState;
use tollgate_core::{Error, ErrorKind};

/// What to do where the tables and functions are not there.
pub(crate) struct Missing(pub(crate) &'static str);

/// An error of a statement that ran within a transaction of the user's: nothing of it is kept unless that commits.
pub(crate) fn in_transaction(error: tokio_postgres::Error, missing: &Missing) -> Error {
    let Some(code) = error.code() else {
        let message = "the connection to PostgreSQL was lost, and the transaction with it; begin it again";
        return Error::new(ErrorKind::Unavailable, message).caused_by(error);
    };
    let (kind, message) = match *code {
        SqlState::UNDEFINED_FUNCTION | SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME => {
            (ErrorKind::Config, missing.0)
        }
        SqlState::INSUFFICIENT_PRIVILEGE => (
            ErrorKind::Denied,
            "this user may not use Tollgate's tables in this database; grant usage on its schema, and \
             select, insert and update on its tables",
        ),
        SqlState::T_R_DEADLOCK_DETECTED => (
            ErrorKind::Deadlock,
            "this transaction and another one deadlocked, and this one was rolled back; begin it again",
        ),
        SqlState::T_R_SERIALIZATION_FAILURE => (
            ErrorKind::Unavailable,
            "this transaction conflicted with another one and cannot continue; begin it again",
        ),
        SqlState::QUERY_CANCELED | SqlState::LOCK_NOT_AVAILABLE => (
            ErrorKind::Timeout,
            "a time limit of this connection ended the wait (statement_timeout, lock_timeout); begin the transaction again",
        ),
        SqlState::IN_FAILED_SQL_TRANSACTION => (
            ErrorKind::InvalidArgument,
            "an earlier statement of the transaction failed; roll it back, and begin it again",
        ),
        SqlState::READ_ONLY_SQL_TRANSACTION => (
            ErrorKind::Config,
            "the transaction is read-only, or the server is a replica; begin one that writes, on the \
             primary",
        ),
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::CANNOT_CONNECT_NOW => {
            (ErrorKind::Unavailable, "PostgreSQL is shutting down or starting; begin the transaction again")
        }
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => (
            ErrorKind::Timeout,
            "the transaction was idle for longer than idle_in_transaction_session_timeout allows; begin it again",
        ),
        _ => (ErrorKind::Unexpected, "PostgreSQL answered with an error"),
    };
    let said = error.as_db_error().map(|error| format!("{message} ({})", error.message()));
    Error::new(kind, said.unwrap_or_else(|| message.to_owned())).caused_by(error)
}
