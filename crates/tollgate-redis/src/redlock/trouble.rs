//! Why a node is of no use now.

use redis::RedisError;
use tollgate_core::{Error, ErrorKind};

use crate::error::{of_answer, of_connect};

/// Why a node did not do what it was asked.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Trouble {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A connection could not be opened.
    pub(crate) fn connecting(error: RedisError) -> Self {
        Self::from(of_connect(error))
    }

    /// A request was not answered, or refused.
    pub(crate) fn asking(error: RedisError) -> Self {
        if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
            let message =
                format!("the connection was lost before its answer; it may act all the same ({error})");
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
        Self { kind: error.kind(), message: format!("{}{cause}", error.message()) }
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        Self::new(trouble.kind, trouble.message)
    }
}
