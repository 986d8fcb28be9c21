//! Fencing tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a passage: below 2^53 (so that every language's numbers hold it), never zero, and
/// comparable within one engine and name. A later acquisition of a name carries a larger token.
///
/// ```
/// use tollgate::Token;
///
/// let token = Token::new(42)?;
/// assert!(Token::MIN < token && token < Token::MAX);
/// assert_eq!(token.get(), 42);
/// # Ok::<(), tollgate::InvalidToken>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Token(u64);

/// A number that cannot be a token.
///
/// ```
/// use tollgate::Token;
///
/// assert!(Token::new(0).is_err() && Token::new(1 << 53).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fencing token is a number from 1 to 2^53 - 1, not {0}")]
pub struct InvalidToken(pub u64);

impl Token {
    /// The smallest token.
    pub const MIN: Self = Self(1);
    /// The largest token.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Makes `number` a token.
    pub fn new(number: u64) -> Result<Self, InvalidToken> {
        if (Self::MIN.0..=Self::MAX.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(InvalidToken(number))
        }
    }

    /// The bare number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The next larger token, `None` past the last.
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1).ok()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u64> for Token {
    type Error = InvalidToken;
    fn try_from(number: u64) -> Result<Self, InvalidToken> {
        Self::new(number)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_a_double() {
        assert_eq!(Token::new(0), Err(InvalidToken(0)));
        assert_eq!(Token::new(1 << 53), Err(InvalidToken(1 << 53)));
        assert_eq!(Token::MAX.next(), None);
        assert_eq!(Token::MAX.get() as f64 as u64, Token::MAX.get());
    }
}
