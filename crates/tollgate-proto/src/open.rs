//! An enum value in an answer, which may be newer than the program that reads it.

use serde::{Deserialize, Serialize};

/// A value of `T`, or the text of one that a later server knows and this program does not.
///
/// Enums of requests are closed: what is unknown there is refused.
///
/// ```
/// use tollgate_proto::{KeepState, Open};
///
/// let known: Open<KeepState> = serde_json::from_str("\"held\"")?;
/// assert_eq!(known.known(), Some(KeepState::Held));
/// let later: Open<KeepState> = serde_json::from_str("\"suspended\"")?;
/// assert_eq!(later, Open::Other("suspended".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Open<T> {
    /// A value that this program knows.
    Known(T),
    /// The text of any other.
    Other(Box<str>),
}

impl<T: Copy> Open<T> {
    /// The value, if this program knows it.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Other(_) => None,
        }
    }
}

impl<T> From<T> for Open<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}
