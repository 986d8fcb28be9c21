//! A server's clock, reckoned from ours: tokens are proposed by it.

use std::sync::atomic::{AtomicI64, Ordering};

use tollgate_core::Moment;

/// How far a server's clock is ahead of ours, in microseconds. Nothing is right or wrong because of it: a token that
/// is not larger than all before is refused by the server, and another one drawn there.
#[derive(Debug)]
pub(crate) struct ServerClock(AtomicI64);

impl ServerClock {
    /// It said `micros` not later than at `heard`.
    pub(crate) fn new(micros: u64, heard: Moment) -> Self {
        let clock = Self(AtomicI64::new(0));
        clock.set(micros, heard);
        clock
    }

    /// Corrects it by what the server said.
    pub(crate) fn set(&self, micros: u64, heard: Moment) {
        let ahead = i64::try_from(micros).unwrap_or(i64::MAX).saturating_sub(in_micros(heard));
        self.0.store(ahead, Ordering::Relaxed);
    }

    /// What it says now, or said a moment ago: never what it will say.
    pub(crate) fn at(&self, now: Moment) -> u64 {
        u64::try_from(in_micros(now).saturating_add(self.0.load(Ordering::Relaxed))).unwrap_or(0)
    }
}

fn in_micros(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos() / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_the_server_said() {
        let clock = ServerClock::new(1_000_000, Moment::from_nanos(5_000_000));
        assert_eq!(clock.at(Moment::from_nanos(7_000_000)), 1_002_000);
        clock.set(900_000, Moment::from_nanos(8_000_000));
        assert_eq!(clock.at(Moment::from_nanos(8_001_000)), 900_001);
    }
}
