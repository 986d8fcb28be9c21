//! What a holder shows to a resource that refuses stale tokens.

use std::fmt;

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
    /// What somebody showed who is not here: a token that came over a wire, and whether its lock was exclusive.
    ///
    /// This trusts the caller. Whoever shows 2^53 - 1 shuts everybody else out for good, where nothing asks the
    /// engine whether it ever gave that token. In a process that holds the lock itself use
    /// [`Guard::fence`](crate::Lease::fence), which checks that it still does.
    ///
    /// ```
    /// use tollgate::{Fence, Mark, Token};
    ///
    /// let mut mark = Mark::new();
    /// mark.admit(Fence::shown(Token::new(42)?, true))?;
    /// assert!(mark.admit(Fence::shown(Token::new(41)?, true)).is_err());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn shown(token: Token, exclusive: bool) -> Self {
        Self { token, exclusive }
    }

    /// The number to compare.
    pub fn token(self) -> Token {
        self.token
    }

    /// Whether it raises the resource's mark; a shared holder's does not.
    pub fn is_exclusive(self) -> bool {
        self.exclusive
    }

    /// What a resource answers that let `highest` in already: the same words everywhere, counted and traced.
    pub fn refused(self, highest: Token) -> Error {
        let message = format!(
            "the token {} is stale, the larger token {highest} was admitted before; take the lock again",
            self.token
        );
        Stale { token: self.token, highest: Some(highest) }.told(message)
    }
}

/// The two numbers of a refusal, for whoever passes it on in another form than words.
///
/// ```
/// use tollgate::{Fence, Mark, Stale, Token};
///
/// let mut mark = Mark::at(Token::new(9)?);
/// let refused = mark.admit(Fence::shown(Token::new(7)?, true)).unwrap_err();
/// let stale = Stale::of(&refused).expect("it says so");
/// assert_eq!((stale.token.get(), stale.highest), (7, Token::new(9).ok()));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// What was shown.
    pub token: Token,
    /// What was let in before; nothing where the resource compares the lock itself and keeps no mark.
    pub highest: Option<Token>,
}

impl Stale {
    /// What a refusal was about; nothing for any other error.
    pub fn of(error: &Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }

    /// What a resource answers that compares the lock itself: it is not held any more, or never was.
    pub fn unheld(token: Token, message: impl Into<String>) -> Error {
        Self { token, highest: None }.told(message.into())
    }

    fn told(self, message: String) -> Error {
        counter!(REJECTED).increment(1);
        let (token, highest) = (self.token.get(), self.highest.map(Token::get));
        tracing::warn!(target: "tollgate", token, highest, "stale token refused");
        Error::new(ErrorKind::Lost, message).caused_by(self)
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.highest {
            Some(highest) => write!(f, "the token {} is below the mark {highest}", self.token),
            None => write!(f, "the token {} is not held", self.token),
        }
    }
}

impl std::error::Error for Stale {}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        let stale = Stale::of(&error).unwrap();
        assert_eq!((Some(stale.token), stale.highest), (Token::new(7).ok(), mark.highest()));
    }

    #[test]
    fn a_reader_raises_nothing() {
        let mut mark = Mark::at(Token::new(5).unwrap());
        mark.admit(fence(8, false)).unwrap();
        mark.admit(fence(6, true)).unwrap();
        assert!(mark.admit(fence(5, false)).is_err());
    }
}
