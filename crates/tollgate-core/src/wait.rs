//! The one wait loop, for engines without a queue.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::backend::{Attempt, Backend, Contention};
use crate::claim::Claim;
use crate::clock::Clock;
use crate::error::Result;
use crate::grant::Grant;

/// The first pause between two attempts.
const FIRST: Duration = Duration::from_millis(5);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_millis(250);

/// Tries again until the lock is granted, with pauses that grow and are never alike.
///
/// An attempt that was answered `Busy` left nothing behind, so the next one is a new request and its
/// deadline counts from its own send. An error ends the wait: nothing repeats an unknown outcome.
pub async fn poll(backend: &dyn Backend, clock: &dyn Clock, claim: &Claim) -> Result<Grant> {
    let mut pause = FIRST;
    let mut waited = false;
    loop {
        match backend.try_acquire(claim).await? {
            Attempt::Granted(grant) => return Ok(Grant { waited, ..grant }),
            Attempt::Busy(contention) => {
                waited = true;
                clock.sleep_until(clock.now() + jittered(bounded(pause, contention))).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

/// No longer than until the lock can come free by itself, and never less than a millisecond.
fn bounded(pause: Duration, contention: Contention) -> Duration {
    let bound = contention.retry_after.unwrap_or(LONGEST).max(Duration::from_millis(1));
    pause.min(bound)
}

/// Between half of `pause` and all of it, so that waiters who were refused together do not return together.
pub(crate) fn jittered(pause: Duration) -> Duration {
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
}
