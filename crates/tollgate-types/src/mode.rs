//! Modes, and the one rule that decides who may be in together.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// How a claim wants to share its lock.
///
/// ```
/// use tollgate::Mode;
///
/// assert!(Mode::Shared.joins([Mode::Shared, Mode::Shared]));
/// assert!(!Mode::Exclusive.joins([Mode::Shared]));
/// let permit = Mode::permit(2).expect("at least one");
/// assert!(permit.joins([permit]) && !permit.joins([permit, permit]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with every other shared claim: many readers.
    Shared,
    /// Together with other permits of the same limit, at most `limit` at a time: a semaphore.
    Permit {
        /// How many may be in at a time.
        limit: NonZeroU32,
    },
}

impl Mode {
    /// A permit of a semaphore for `limit` holders; `None` for zero, which nobody could ever take.
    pub fn permit(limit: u32) -> Option<Self> {
        NonZeroU32::new(limit).map(|limit| Self::Permit { limit })
    }

    /// The one rule: claims on a name form one queue, and a claim is granted when it is compatible with
    /// every claim before it, holders and waiters alike.
    ///
    /// Counting the waiters is what keeps readers from starving a writer that arrived before them.
    ///
    /// ```
    /// use tollgate::Mode;
    /// let (reader, writer, two) = (Mode::Shared, Mode::Exclusive, Mode::permit(2).unwrap());
    /// assert!(reader.joins([reader, reader]));
    /// assert!(!reader.joins([reader, writer]));
    /// assert!(two.joins([two]));
    /// assert!(!two.joins([two, two]));
    /// ```
    pub fn joins(self, ahead: impl IntoIterator<Item = Mode>) -> bool {
        let mut count: u32 = 0;
        ahead.into_iter().all(|earlier| {
            count = count.saturating_add(1);
            self.joins_beside(earlier, count)
        })
    }

    /// Whether this claim may be in although `earlier`, the `count`-th claim ahead of it, stands there.
    fn joins_beside(self, earlier: Mode, count: u32) -> bool {
        match (self, earlier) {
            (Self::Shared, Self::Shared) => true,
            (Self::Permit { limit }, Self::Permit { limit: other }) => limit == other && count < limit.get(),
            _ => false,
        }
    }

    /// Whether a claim of this mode that waits behind one of mode `ahead` may be waiting for it. Readers never wait for readers.
    pub fn may_wait_for(self, ahead: Mode) -> bool {
        (self, ahead) != (Self::Shared, Self::Shared)
    }

    /// How many claims of this very mode may hold together.
    pub fn capacity(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Shared => u32::MAX,
            Self::Permit { limit } => limit.get(),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permit { limit } => write!(f, "permit of {limit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_joins_nobody_and_everybody_joins_an_empty_lock() {
        let modes = [Mode::Exclusive, Mode::Shared, Mode::permit(1).unwrap(), Mode::permit(3).unwrap()];
        for mode in modes {
            assert!(mode.joins([]));
            assert!(!Mode::Exclusive.joins([mode]));
            assert!(!mode.joins([Mode::Exclusive]));
        }
    }

    #[test]
    fn permits_of_different_limits_exclude_each_other() {
        let (two, three) = (Mode::permit(2).unwrap(), Mode::permit(3).unwrap());
        assert!(!two.joins([three]));
        assert!(three.joins([three, three]));
        assert!(!three.joins([three, three, three]));
        assert!(!Mode::permit(1).unwrap().joins([Mode::permit(1).unwrap()]));
        assert_eq!(Mode::permit(0), None);
    }
}
