//! The header row: what must be known after a crash besides the grants.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{Moment, Token};

/// What a crash may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Every grant is on the disk before it is answered.
    Sync,
    /// No grant is on the disk. After a crash nothing is granted until all that may be held is over.
    Grace,
}

/// How the rows of grants are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Run {
    /// They are every grant that was answered: `Sync`, or a clean stop of `Grace`.
    Complete,
    /// Grants were given since that have no row: `Grace` runs, or crashed.
    Incomplete,
}

/// The one row of [`Table::Header`](super::Table).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The version of the format.
    pub(super) version: u32,
    pub(super) run: Run,
    /// No token above this one was given.
    pub(super) token_ceiling: Token,
    /// Every fence mark counts as at least this.
    pub(super) mark_floor: Option<Token>,
    /// The engine's time was never later, in nanoseconds.
    pub(super) time_ceiling: u64,
    /// No grant and its lock-delay last longer together, in milliseconds.
    pub(super) longest_ms: u64,
}

impl Header {
    /// The latest version of the format.
    pub(super) const VERSION: u32 = 1;

    pub(super) fn new() -> Self {
        Self {
            version: Self::VERSION,
            run: Run::Complete,
            token_ceiling: Token::MIN,
            mark_floor: None,
            time_ceiling: 0,
            longest_ms: 0,
        }
    }

    pub(super) fn time(&self) -> Moment {
        Moment::from_nanos(self.time_ceiling)
    }

    pub(super) fn longest(&self) -> Duration {
        Duration::from_millis(self.longest_ms)
    }

    /// Rounds up: the bound is never too low.
    pub(super) fn set_longest(&mut self, longest: Duration) {
        self.longest_ms = u64::try_from(longest.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    }
}
