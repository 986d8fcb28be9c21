//! Lock names: what may be called a lock.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A lock's name: UTF-8, 1 to 512 bytes, no control characters, hierarchical by `/`.
///
/// Names are compared byte by byte: `a` and `A` are two locks, and so are `a/b`, `a//b` and `a/./b`.
/// Cloning is cheap.
///
/// ```
/// use tollgate::LockName;
///
/// let name = LockName::new("orders/42")?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert!(LockName::new("").is_err());
/// # Ok::<(), tollgate::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LockName(Arc<str>);

/// Why a string cannot be a lock's name.
///
/// ```
/// let error = tollgate::LockName::new("a\nb").unwrap_err();
/// assert!(error.to_string().contains("control character"), "{error}");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The name has no characters.
    #[error("a lock name cannot be empty")]
    Empty,
    /// The name is too long.
    #[error("a lock name has at most {max} bytes of UTF-8, this one has {bytes}", max = LockName::MAX_BYTES)]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// The name contains a control character.
    #[error("a lock name cannot contain control characters, this one has U+{:04X} at byte {at}", *found as u32)]
    Control {
        /// The first control character.
        found: char,
        /// The byte it starts at.
        at: usize,
    },
}

impl LockName {
    /// The longest name, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 512;

    /// Checks `name` and makes it a lock's name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(InvalidName::Empty);
        }
        if name.len() > Self::MAX_BYTES {
            return Err(InvalidName::TooLong { bytes: name.len() });
        }
        if let Some((at, found)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(InvalidName::Control { found, at });
        }
        Ok(Self(name.into()))
    }

    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl TryFrom<String> for LockName {
    type Error = InvalidName;
    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl TryFrom<&str> for LockName {
    type Error = InvalidName;
    fn try_from(name: &str) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl std::str::FromStr for LockName {
    type Err = InvalidName;
    fn from_str(name: &str) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl From<LockName> for String {
    fn from(name: LockName) -> Self {
        name.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_but_legal_names_are_kept_as_they_are() {
        for name in [" ", "a b", "../x", ".", "a/b", "A", "a%2Fb", "größe", "🔒", &"x".repeat(512)] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_cannot_be_a_name_says_why() {
        let refused = |name: &str| LockName::new(name).unwrap_err().to_string();
        assert_eq!(refused(""), "a lock name cannot be empty");
        assert_eq!(refused(&"x".repeat(513)), "a lock name has at most 512 bytes of UTF-8, this one has 513");
        assert_eq!(
            refused("a\nb"),
            "a lock name cannot contain control characters, this one has U+000A at byte 1"
        );
        assert!(LockName::new("a\u{85}").is_err(), "C1 controls are control characters too");
        assert!(LockName::new(format!("{}é", "x".repeat(511))).is_err(), "the limit is in bytes");
    }
}
