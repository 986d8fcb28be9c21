//! The one wait loop, for engines without a queue, and how every waiter outlasts an engine that is away.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::backend::{Attempt, Backend, Contention};
use crate::claim::Claim;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::Grant;

/// The first pause between two attempts.
const FIRST: Duration = Duration::from_millis(5);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_millis(250);

/// Tries again until the lock is granted, with pauses that grow and are never alike.
///
/// An attempt that was answered `Busy` left nothing behind, so the next one is a new request and its
/// deadline counts from its own send. An error of the first attempt ends the wait. Later ones are an [`Outage`]:
/// nothing repeats an unknown outcome, so the claim is withdrawn, and when that is answered, tried again.
pub async fn poll(backend: &dyn Backend, clock: &dyn Clock, claim: &Claim) -> Result<Grant> {
    poll_past(backend, clock, claim, |_| false).await
}

/// As [`poll`], for an engine whose answer can be that it has no verdict: an error that `passes` left nothing behind, and
/// does not end the wait, not even as the first answer. It does not count as busy.
pub async fn poll_past(
    backend: &dyn Backend,
    clock: &dyn Clock,
    claim: &Claim,
    passes: impl Fn(&Error) -> bool + Send + Sync,
) -> Result<Grant> {
    let mut pause = FIRST;
    let mut waited = false;
    let mut outage = Outage::default();
    loop {
        match backend.try_acquire(claim).await {
            Ok(Attempt::Granted(grant)) => return Ok(Grant { waited, ..grant }),
            Ok(Attempt::Busy(contention)) => {
                waited = true;
                claim.wait_status.set_queued();
                outage.is_over();
                clock.sleep_until(clock.now() + jittered(bounded(pause, contention))).await;
                pause = (pause * 2).min(LONGEST);
            }
            Err(error) if passes(&error) => {
                clock.sleep_until(clock.now() + jittered(pause)).await;
                pause = (pause * 2).min(LONGEST);
            }
            Err(error) if waited => {
                clock.sleep_until(clock.now() + outage.pause(error)?).await;
                while let Err(error) = backend.withdraw(claim).await {
                    clock.sleep_until(clock.now() + outage.pause(error)?).await;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// The pauses of a waiter whose engine is away. They grow until it answers again.
///
/// Only for a claim that was answered before: whoever comes to an engine that is away hears of it at once, but whoever
/// waits goes on waiting, as long as the caller lets it.
#[derive(Debug, Default)]
pub struct Outage {
    /// The last one; none yet.
    last: Option<Duration>,
}

impl Outage {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);

    /// How long to wait before the engine is asked again.
    ///
    /// # Errors
    /// `error` itself if waiting does not make it better: a wrong password stays wrong.
    pub fn pause(&mut self, error: Error) -> Result<Duration> {
        if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) {
            return Err(error);
        }
        let next = self.last.map_or(Self::FIRST, |last| (last * 2).min(Self::LONGEST));
        self.last = Some(next);
        Ok(jittered(next))
    }

    /// The engine answers.
    pub fn is_over(&mut self) {
        self.last = None;
    }
}

/// No longer than until the lock can come free by itself, and never less than a millisecond.
fn bounded(pause: Duration, contention: Contention) -> Duration {
    let bound = contention.retry_after.unwrap_or(LONGEST).max(Duration::from_millis(1));
    pause.min(bound)
}

/// Between half of `pause` and all of it, so that waiters who were refused together do not return together.
pub fn jittered(pause: Duration) -> Duration {
    // Each is made with another key, without asking the system.
    let random = RandomState::new().hash_one(()) as u32;
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_end_when_the_lock_can_come_free() {
        let soon = Contention { ahead: None, retry_after: Some(Duration::from_millis(3)) };
        assert_eq!(bounded(LONGEST, soon), Duration::from_millis(3));
        for _ in 0..100 {
            let pause = jittered(LONGEST);
            assert!((LONGEST / 2..=LONGEST).contains(&pause), "{pause:?}");
        }
    }

    #[test]
    fn an_outage_is_waited_for_and_a_wrong_password_is_not() {
        let mut outage = Outage::default();
        let away = || Error::new(ErrorKind::Unavailable, "away");
        let pauses: Vec<_> = (0..9).map(|_| outage.pause(away()).unwrap()).collect();
        assert!(pauses[0] <= Outage::FIRST && pauses[8] >= Outage::LONGEST / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= Outage::LONGEST), "{pauses:?}");
        outage.is_over();
        assert!(outage.pause(away()).unwrap() <= Outage::FIRST);
        for lasting in [ErrorKind::Denied, ErrorKind::Config, ErrorKind::Lost, ErrorKind::Unexpected] {
            assert_eq!(outage.pause(Error::new(lasting, "x")).unwrap_err().kind(), lasting);
        }
    }
}
