//! The clock that deadlines are counted on, for the parts of the command that run without the
//! library.

use std::time::Duration;

use tollgate::Moment;

/// The time of CLOCK_BOOTTIME.
pub(crate) fn now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    Moment::ZERO + seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}
