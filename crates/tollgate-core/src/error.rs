//! The one error type: what went wrong, where, and whether trying again can help.

use std::error::Error as StdError;
use std::fmt;

use tollgate_types::{InvalidName, InvalidToken, LockName};

/// What sort of thing went wrong.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-error-kind").await?;
/// use tollgate::ErrorKind;
///
/// let error = locks.lock("").acquire().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller asked for something that cannot be: a bad name, a ttl out of range.
    InvalidArgument,
    /// The backend cannot do this, and its `Capabilities` say so.
    Unsupported,
    /// A URL, folder or engine is set up so that no lock can be given.
    Config,
    /// The engine or the operating system refused us.
    Denied,
    /// The engine cannot be reached or cannot work now. Nothing was changed.
    Unavailable,
    /// The lock was held by others for as long as the request was to wait. `try_acquire` answers `None` instead.
    Busy,
    /// Time ran out for something else than a busy lock.
    Timeout,
    /// The reply did not come: it may have happened or not. Never counts as held.
    Indeterminate,
    /// The lock was held and is not any more.
    Lost,
    /// Waiting would never have ended.
    Deadlock,
    /// A bug here or in the engine.
    Unexpected,
}

impl ErrorKind {
    /// Whether the same call may succeed later without anybody changing anything.
    fn retry_can_help(self) -> bool {
        matches!(self, Self::Busy | Self::Unavailable | Self::Timeout | Self::Indeterminate | Self::Deadlock)
    }
}

/// An error of any operation, on any backend.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-error").await?;
/// let error = locks.lock("a\0b").acquire().await.unwrap_err();
/// println!("{error}");
/// assert_eq!(error.operation(), Some("acquire"));
/// assert!(!error.is_retryable());
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    operation: Option<&'static str>,
    lock: Option<LockName>,
    retryable: bool,
    overload: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of any operation.
///
/// ```
/// fn checked(name: &str) -> tollgate::Result<tollgate::LockName> {
///     Ok(tollgate::LockName::new(name)?)
/// }
/// assert!(checked("orders/42").is_ok());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a sentence that tells the reader what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            operation: None,
            lock: None,
            retryable: kind.retry_can_help(),
            overload: false,
            source: None,
        }))
    }

    /// [`ErrorKind::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Adds the operation it happened in, unless one is there already.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Names the lock it happened on, whatever it was called before: a layer knows it by another name.
    pub(crate) fn about(mut self, lock: &LockName) -> Self {
        self.0.lock = Some(lock.clone());
        self
    }

    /// Adds the lock it happened on, unless one is there already.
    #[must_use]
    pub fn on(mut self, lock: &LockName) -> Self {
        self.0.lock.get_or_insert_with(|| lock.clone());
        self
    }

    /// Says whether a retry can help, where the kind alone does not tell.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    /// Says that the engine was reached, or may have been, and did not answer in time or had no room for another
    /// connection.
    #[must_use]
    pub fn of_overload(mut self) -> Self {
        self.0.overload = true;
        self
    }

    /// Adds what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What sort of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// Which lock it was done to.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.lock.as_ref()
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether this is what an overloaded engine looks like: it did not answer in time, or had no room for another
    /// connection. A wrong address, at which packets are dropped, looks the same.
    pub fn is_overload(&self) -> bool {
        self.0.overload
    }

    /// The sentence alone, without operation and lock.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.operation, &self.0.lock) {
            (Some(operation), Some(lock)) => write!(f, "cannot {operation} {lock:?}: ")?,
            (Some(operation), None) => write!(f, "cannot {operation}: ")?,
            (None, Some(lock)) => write!(f, "lock {lock:?}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("operation", &self.0.operation)
            .field("lock", &self.0.lock)
            .field("message", &self.0.message)
            .field("retryable", &self.0.retryable)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<InvalidName> for Error {
    fn from(error: InvalidName) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<InvalidToken> for Error {
    fn from(error: InvalidToken) -> Self {
        Self::new(ErrorKind::Unexpected, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_operation_the_lock_and_what_to_do() {
        let name = LockName::new("orders/42").unwrap();
        let error =
            Error::new(ErrorKind::Unavailable, "the folder is gone; create it").during("acquire").on(&name);
        assert_eq!(error.to_string(), "cannot acquire \"orders/42\": the folder is gone; create it");
        assert!(error.is_retryable());
        let outer = error.during("release");
        assert_eq!(outer.operation(), Some("acquire"), "the innermost operation is the one that failed");
    }
}
