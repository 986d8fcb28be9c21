//! The engine's clock: it stands still while the server does.

use std::time::Duration;

use tollgate_core::Moment;

/// How often the service looks at the clock at least, while it runs.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(100);
/// A turn may come this much later than it was due.
const SLACK: Duration = Duration::from_millis(250);

/// Counts the engine's time from real moments, without those in which the server was stopped, starved or suspended: what
/// clients sent meanwhile waits in its sockets, and no lease ends because of that. A lease that lasts longer at the server than
/// its holder believes is safe.
pub struct EngineClock {
    /// The engine's time is the real one, this much earlier.
    behind: Duration,
    /// The engine's time at the start, which goes on from the one that is stored.
    offset: Moment,
    last: Moment,
}

impl EngineClock {
    /// A clock that shows `start` at the real moment `now`.
    pub fn new(start: Moment, now: Moment) -> Self {
        Self { behind: now.since(Moment::ZERO), offset: start, last: now }
    }

    /// The engine's time at the real moment `now`.
    pub fn at(&mut self, now: Moment) -> Moment {
        let turn = now.since(self.last);
        self.behind += turn.saturating_sub(HEARTBEAT + SLACK);
        self.last = self.last.max(now);
        self.offset + self.last.since(Moment::ZERO).saturating_sub(self.behind)
    }

    /// The same as if the server had never stopped, for the simulator's flawed servers.
    #[doc(hidden)]
    pub fn without_pauses(&mut self, now: Moment) -> Moment {
        self.last = self.last.max(now);
        self.offset + self.last.since(Moment::ZERO).saturating_sub(self.behind)
    }

    /// The real moment at which the engine's time will be `when`, if the server does not stop before.
    pub fn real(&self, when: Moment) -> Moment {
        Moment::ZERO + (when.since(self.offset) + self.behind)
    }
}

/// CLOCK_BOOTTIME: it runs on in suspend.
pub(crate) fn boottime() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Moment::from_nanos(secs * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn it_goes_on_from_the_stored_time_and_with_the_real_one() {
        let mut clock = EngineClock::new(at(60_000), at(5_000));
        assert_eq!(clock.at(at(5_000)), at(60_000));
        assert_eq!(clock.at(at(5_300)), at(60_300));
        assert_eq!(clock.real(at(60_400)), at(5_400));
        assert_eq!(clock.at(at(5_200)), at(60_300), "it never goes back");
    }

    #[test]
    fn it_stands_still_while_the_server_does() {
        let mut clock = EngineClock::new(at(0), at(0));
        assert_eq!(clock.at(at(100)), at(100));
        assert_eq!(clock.at(at(60_100)), at(100 + 350), "of a minute's stop only the slack counts");
        assert_eq!(clock.at(at(60_200)), at(550));
        assert_eq!(clock.real(at(650)), at(60_300));
    }
}
