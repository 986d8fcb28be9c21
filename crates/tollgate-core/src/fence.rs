//! What a holder shows to a resource that refuses stale tokens.

use metrics::counter;
use tollgate_types::Token;

use crate::error::{Error, ErrorKind, Result};

/// How often a stale token was refused, as the `metrics` facade knows it.
pub(crate) const REJECTED: &str = "tollgate_fence_rejected_total";

/// Proof, as fresh as it can be, to show to a resource that refuses stale tokens.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-fence-type").await?;
/// let guard = locks.lock("orders/42").acquire().await?;
/// let fence = guard.fence()?;
/// assert_eq!(u64::from(fence), guard.token().get());
/// assert!(fence.is_exclusive());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    pub(crate) token: Token,
    pub(crate) exclusive: bool,
}

impl Fence {
    /// The number to compare.
    pub fn token(self) -> Token {
        self.token
    }

    /// Whether it raises the resource's mark; a shared holder's does not.
    pub fn is_exclusive(self) -> bool {
        self.exclusive
    }

    /// What a resource answers that let `highest` in already: the same words everywhere, and counted.
    pub fn refused(self, highest: Token) -> Error {
        counter!(REJECTED).increment(1);
        let stale = self.token;
        let message = format!("the token {stale} is stale, {highest} was here already; take the lock again");
        Error::new(ErrorKind::Lost, message)
    }
}

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.token.fmt(f)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.token.get()
    }
}

/// For databases, whose numbers have a sign. A token is below 2^53.
impl From<Fence> for i64 {
    fn from(fence: Fence) -> Self {
        fence.token.get() as Self
    }
}

/// The mark of a resource that refuses stale tokens: the rule alone, for a resource within this process or
/// for whoever keeps the number elsewhere.
///
/// An exclusive token raises the mark. A shared one is admitted if it is not below the mark, and raises
/// nothing. Equal passes, smaller is refused.
///
/// Admit before the first *read* of the resource: otherwise a stale write can slip in between a holder's
/// read and its write. And never check and act in two steps: keep the mark under the resource's own lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-mark").await?;
/// use tollgate::Mark;
///
/// let mut mark = Mark::new();
/// let old = locks.lock("file").acquire().await?;
/// let stale = old.fence()?;
/// old.release().await?;
/// let new = locks.lock("file").acquire().await?;
/// mark.admit(new.fence()?)?;
/// assert!(mark.admit(stale).is_err(), "it comes too late");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    highest: Option<Token>,
}

impl Mark {
    /// The mark of a resource that nobody wrote to yet.
    pub const fn new() -> Self {
        Self { highest: None }
    }

    /// A mark that was stored as a number.
    pub const fn at(highest: Token) -> Self {
        Self { highest: Some(highest) }
    }

    /// The highest exclusive token that was admitted.
    pub fn highest(&self) -> Option<Token> {
        self.highest
    }

    /// Lets a holder in, or fails with `Lost` if somebody was in after it.
    pub fn admit(&mut self, fence: Fence) -> Result<()> {
        match self.highest {
            Some(highest) if fence.token < highest => return Err(fence.refused(highest)),
            _ if fence.exclusive => self.highest = Some(fence.token),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(number: u64, exclusive: bool) -> Fence {
        Fence { token: Token::new(number).unwrap(), exclusive }
    }

    #[test]
    fn a_stale_token_is_refused_and_says_both_numbers() {
        let mut mark = Mark::new();
        mark.admit(fence(7, true)).unwrap();
        mark.admit(fence(7, true)).unwrap();
        mark.admit(fence(9, true)).unwrap();
        let error = mark.admit(fence(7, true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(error.to_string().contains('7') && error.to_string().contains('9'), "{error}");
        assert_eq!(mark.highest(), Token::new(9).ok());
    }

    #[test]
    fn a_reader_raises_nothing() {
        let mut mark = Mark::at(Token::new(5).unwrap());
        mark.admit(fence(8, false)).unwrap();
        mark.admit(fence(6, true)).unwrap();
        assert!(mark.admit(fence(5, false)).is_err());
    }
}
