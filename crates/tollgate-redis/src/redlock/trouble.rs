//! Why a node is of no use now.

use redis::RedisError;
use tollgate_core::{Error, ErrorKind};

use crate::error::{of_answer, of_connect};

/// Why a node did not do what it was asked.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// Nodes and URL contradict each other: no majority makes that right.
    pub(crate) of_url: bool,
}

impl Trouble {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), of_url: false }
    }

    /// The URL says something else than the nodes do.
    pub(crate) fn contradiction(message: String) -> Self {
        Self { of_url: true, ..Self::new(ErrorKind::Config, message) }
    }

    /// A connection could not be opened.
    pub(crate) fn connecting(error: RedisError) -> Self {
        Self::from(of_connect(error))
    }

    /// A request was not answered, or refused.
    pub(crate) fn asking(error: RedisError) -> Self {
        if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
            let message = format!(
                "the connection was lost before its answer; the request may have been executed ({error})"
            );
            return Self::new(ErrorKind::Indeterminate, message);
        }
        Self::from(of_answer(error))
    }

    /// Whether somebody has to change something before it is of use.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self.kind, ErrorKind::Config | ErrorKind::Denied)
    }

    /// Whether the node may have done it, or may still do it.
    pub(crate) fn is_unknown(&self) -> bool {
        self.kind == ErrorKind::Indeterminate
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})")).unwrap_or_default();
        Self::new(error.kind(), format!("{}{cause}", error.message()))
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        Self::new(trouble.kind, trouble.message)
    }
}
