//! How long a command that waits for a lock tries to reach an engine that looks overloaded.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate::{Error, Moment, Result};

use crate::args::ClaimArgs;
use crate::clock::now;
use crate::tell;

/// How long it tries, from the first failure on. A wrong address at which packets are dropped looks
/// like an overloaded engine, and has to be reported, too.
const OVERLOAD: Duration = Duration::from_secs(30);
/// The first and the longest pause between two tries.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(4);

/// The patience of one command, until its claim is in the queue. After that the wait outlasts
/// outages by itself.
///
/// Hundreds of commands that start together can overload an engine for some seconds. A command that
/// is to wait for ever must not end by that.
pub(crate) struct Patience {
    most: Duration,
    end: Option<Moment>,
    pause: Duration,
}

impl Patience {
    /// For a claim; with `--try` there is none, and no more than `--wait` allows.
    pub(crate) fn of(claim: &ClaimArgs) -> Self {
        if claim.try_once {
            return Self::none();
        }
        let most = claim.wait.map_or(OVERLOAD, |wait| wait.min(OVERLOAD));
        Self { most, end: None, pause: FIRST }
    }

    /// Every error ends the command.
    pub(crate) fn none() -> Self {
        Self { most: Duration::ZERO, end: None, pause: FIRST }
    }

    /// The pause before the next try.
    ///
    /// # Errors
    /// `error`, if it is not one of an overload, or the time is over.
    pub(crate) fn pause(&mut self, error: Error) -> Result<Duration> {
        if !error.is_overload() || self.most.is_zero() {
            return Err(error);
        }
        let end = match self.end {
            Some(end) => end,
            None => {
                tell::note(&format!("{error}; trying again for up to {:?}", self.most));
                *self.end.insert(now() + self.most)
            }
        };
        if now() >= end {
            return Err(error);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST);
        Ok(spread(pause).min(end.since(now())))
    }
}

/// Between a quarter of `pause` and all of it: commands that failed together do not return together.
fn spread(pause: Duration) -> Duration {
    // Each RandomState has another key.
    let random = RandomState::new().hash_one(()) as u32;
    pause / 4 + (pause * 3 / 4).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use tollgate::ErrorKind;

    use super::*;

    fn away() -> Error {
        Error::new(ErrorKind::Unavailable, "away")
    }

    #[test]
    fn an_overloaded_engine_is_tried_again_and_one_that_refuses_is_not() {
        let mut patience = Patience::of(&ClaimArgs::default());
        let pauses: Vec<_> = (0..9).map(|_| patience.pause(away().of_overload()).unwrap()).collect();
        assert!(pauses[0] <= FIRST && pauses[8] >= LONGEST / 4, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST), "{pauses:?}");
        assert!(patience.pause(away()).is_err(), "nothing listens at the address");
    }

    #[test]
    fn patience_ends_with_the_wait() {
        let none = ClaimArgs { try_once: true, ..ClaimArgs::default() };
        assert!(Patience::of(&none).pause(away().of_overload()).is_err());
        let wait = Some(Duration::from_millis(20));
        let mut short = Patience::of(&ClaimArgs { wait, ..ClaimArgs::default() });
        assert!(short.pause(away().of_overload()).unwrap() <= Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(25));
        assert!(short.pause(away().of_overload()).is_err());
    }
}
