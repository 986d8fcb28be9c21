//! Gates: where the marks of resources are kept that cannot keep them themselves.
//!
//! Data in a database has its mark beside it, compared and raised in the transaction that writes. A file, or a service behind
//! HTTP, has no such place: whoever stands before it asks a gate, and lets through what the gate admits.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tollgate_types::Token;

use crate::backend::BoxFuture;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{Fence, Mark};

/// The most bytes of a resource's name.
pub const LONGEST_RESOURCE: usize = 512;

/// The marks of resources: the highest exclusive token that each was told to admit.
///
/// A *resource* is what one lock protects, called as you like: 1 to 512 bytes of UTF-8 without control characters, the rule
/// that lock names have. Resources know nothing of each other.
///
/// Implementations keep this contract, and the test kit's `gates` holds them to it:
///
/// - The comparison and the raise are one step. After somebody was admitted with `n`, nobody below `n` is, whichever process
///   asks.
/// - A mark never falls. What cannot be read is an error, and never a lower mark.
/// - A gate says what it knows. What was not answered is an error: whoever asked may not act. That the mark was raised all
///   the same is harmless, and so is to ask again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// use tollgate::{ErrorKind, Fence, Token};
///
/// let gate = tollgate::gate("memory:doc-gate").await?;
/// let shown = |token, exclusive| Ok::<_, tollgate::Error>(Fence::shown(Token::new(token)?, exclusive));
///
/// gate.admit("orders", shown(7, true)?).await?;
/// gate.admit("orders", shown(9, true)?).await?;
/// let stale = gate.admit("orders", shown(7, true)?).await.unwrap_err();
/// assert_eq!(stale.kind(), ErrorKind::Lost);
/// // A reader is let in above the mark, and raises nothing.
/// gate.admit("orders", shown(12, false)?).await?;
/// assert_eq!(gate.highest("orders").await?, Token::new(9).ok());
/// # Ok(())
/// # }
/// ```
pub trait Gate: Send + Sync {
    /// Lets a holder in, which shuts out everybody before it, or fails.
    ///
    /// - An exclusive token raises the mark to itself. A shared one that is not below the mark passes and raises nothing.
    ///   Equal passes. A smaller one is refused with [`Fence::refused`]: [`ErrorKind::Lost`](crate::ErrorKind), and
    ///   [`Stale`](crate::Stale) has both numbers.
    /// - The mark is on the disk before this answers: a crash of the store does not bring an older one back. Where the store
    ///   is set up to forget (a Redis without `appendfsync always`, a database that commits without its disk), it does.
    /// - [`ErrorKind::InvalidArgument`](crate::ErrorKind) for a name that cannot be a resource's; nothing is remembered then.
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind) if the store cannot be reached, and
    ///   [`ErrorKind::Indeterminate`](crate::ErrorKind) if it did not answer: the mark may have been raised.
    /// - Dropped before its answer, the mark may have been raised, too.
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>>;

    /// What [`admit`](Self::admit) answers, where that takes no waiting: no network, no disk, no other thread. Nothing where it
    /// does, and nothing was done then.
    ///
    /// Those who come together share an answer that takes long. To share this one would take longer than to give it.
    fn admit_at_once(&self, resource: &str, fence: Fence) -> Option<Result<()>> {
        let _ = (resource, fence);
        None
    }

    /// The mark: the highest exclusive token that was admitted, and nothing if there was none.
    ///
    /// Raises nothing. What is told here may be exceeded by the time it is read: never decide by it who may act.
    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>>;
}

/// Refuses what cannot be a resource's name on every gate.
///
/// ```
/// assert!(tollgate_core::gate::check("orders/42").is_ok());
/// assert!(tollgate_core::gate::check("").is_err());
/// ```
pub fn check(resource: &str) -> Result<()> {
    if resource.is_empty() || resource.len() > LONGEST_RESOURCE || resource.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "a resource name has 1 to {LONGEST_RESOURCE} bytes of UTF-8 and no control characters; use \
             another name"
        )));
    }
    Ok(())
}

/// A mark that cannot be a token: somebody wrote it there by hand, and nobody knows who was admitted.
pub fn damaged(resource: &str, mark: i64) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "the mark of {resource:?} is {mark}, which is not a token; set it to the largest token that \
             was granted for it"
        ),
    )
}

/// Marks in the memory of this process, for tests and for what ends with the process: they are forgotten with it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// use tollgate::{Fence, Gate, MemoryGate, Token};
///
/// let gate = MemoryGate::new();
/// gate.admit("cache", Fence::shown(Token::new(3)?, true)).await?;
/// assert_eq!(gate.highest("cache").await?, Token::new(3).ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct MemoryGate {
    marks: Mutex<HashMap<Box<str>, Mark>>,
}

impl MemoryGate {
    /// A gate of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// The gate that is called so in this process: the same one for all who ask.
    pub fn named(name: &str) -> Arc<Self> {
        static GATES: LazyLock<Mutex<HashMap<Box<str>, Arc<MemoryGate>>>> = LazyLock::new(Mutex::default);
        let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(name.into()).or_default().clone()
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Box<str>, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        self.raise(resource, fence).map_err(|error| error.during("admit"))
    }

    fn raise(&self, resource: &str, fence: Fence) -> Result<()> {
        check(resource)?;
        let mut marks = self.marks();
        match marks.get_mut(resource) {
            Some(mark) => mark.admit(fence),
            None => {
                if fence.is_exclusive() {
                    marks.insert(resource.into(), Mark::at(fence.token()));
                }
                Ok(())
            }
        }
    }
}

impl Gate for MemoryGate {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(self.decide(resource, fence)))
    }

    fn admit_at_once(&self, resource: &str, fence: Fence) -> Option<Result<()>> {
        Some(self.decide(resource, fence))
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        let mark = check(resource).map(|()| self.marks().get(resource).and_then(Mark::highest));
        Box::pin(std::future::ready(mark))
    }
}

/// Marks that a gate has itself seen brought to the disk, so that whoever comes with the same token again need not wait for
/// the disk again. What others raised may not be there yet, though it can be read.
#[derive(Debug, Default)]
pub struct Confirmed {
    marks: Mutex<HashMap<Box<str>, Token>>,
}

/// How many marks are remembered: beyond that all are confirmed anew.
const REMEMBERED: usize = 4096;

impl Confirmed {
    /// Whether the mark of `resource` was seen on the disk at this token.
    pub fn is(&self, resource: &str, token: Token) -> bool {
        self.marks().get(resource) == Some(&token)
    }

    /// Whether its mark was seen on the disk at all.
    pub fn knows(&self, resource: &str) -> bool {
        self.marks().contains_key(resource)
    }

    /// It was seen there.
    pub fn note(&self, resource: &str, token: Token) {
        let mut marks = self.marks();
        if marks.len() >= REMEMBERED && !marks.contains_key(resource) {
            marks.clear();
        }
        marks.insert(resource.into(), token);
    }

    /// Whether `fence` can be answered by reading the mark alone: it raises nothing, or it did before.
    pub fn needs_no_write(&self, resource: &str, fence: Fence) -> bool {
        !fence.is_exclusive() || self.is(resource, fence.token())
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Box<str>, Token>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a mark that was read says to a holder that raises nothing: let in, refused, or nothing if it has to be raised after
/// all.
pub fn by_reading(mark: Option<Token>, fence: Fence) -> Option<Result<()>> {
    match mark {
        Some(highest) if fence.token() < highest => Some(Err(fence.refused(highest))),
        _ if !fence.is_exclusive() || mark == Some(fence.token()) => Some(Ok(())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_store_could_keep_are_refused_by_all() {
        for wrong in ["", "a\0b", "a\nb", &"x".repeat(513)] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
        for right in ["a", "orders/42", "{a}:b%", &"ü".repeat(256)] {
            assert!(check(right).is_ok(), "{right:?}");
        }
    }

    #[test]
    fn a_reading_decides_all_but_a_raise() {
        let fence = |token, exclusive| Fence::shown(Token::new(token).unwrap(), exclusive);
        let mark = Token::new(5).ok();
        assert!(by_reading(mark, fence(5, true)).unwrap().is_ok());
        assert!(by_reading(mark, fence(4, true)).unwrap().is_err());
        assert!(by_reading(mark, fence(4, false)).unwrap().is_err());
        assert!(by_reading(mark, fence(6, false)).unwrap().is_ok());
        assert!(by_reading(mark, fence(6, true)).is_none());
        assert!(by_reading(None, fence(6, false)).unwrap().is_ok());
        assert!(by_reading(None, fence(6, true)).is_none());
    }
}
