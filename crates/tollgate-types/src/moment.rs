//! Points in time.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on a clock that only goes forward, in nanoseconds since an origin of that clock.
///
/// On a running system that clock is CLOCK_BOOTTIME, so moments compare within one boot of one host and
/// mean nothing elsewhere. Arithmetic saturates: a moment beyond the end of time is the end of time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Moment;
///
/// let start = Moment::from_nanos(5);
/// assert_eq!((start + Duration::from_secs(1)).since(start), Duration::from_secs(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other moment: about 584 years after the origin.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here, zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(nanos(after)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(before)))
    }
}
