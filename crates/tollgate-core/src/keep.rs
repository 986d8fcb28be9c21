//! Renewal: what the keeper does for one guard, from its first due moment to its end.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tollgate_types::Moment;

use crate::hold::{GuardState, Hold};
use crate::settle;
use crate::wait::jittered;

/// How many renewals of one guard there are in a ttl, at most: an engine whose deadlines do not move is not asked ever faster.
const MOST: u32 = 20;

/// When a guard is first renewed: after a third of its ttl, or at once if it came with little left.
pub(crate) fn first_renewal(hold: &Hold) -> Moment {
    if !hold.is_renewed() {
        return Moment::MAX;
    }
    let ttl = hold.grant.ttl;
    (hold.since + renewal_pause(hold, hold.since)).min(hold.lease_end() - (ttl - ttl / 3))
}

fn renewal_pause(hold: &Hold, now: Moment) -> Duration {
    pause(hold.grant.ttl, hold.late().since(now))
}

/// A third of the ttl, or half of what is left until a renewal is late if that is less: a session's deadline may be much closer than
/// a ttl. A little less for some, so that guards taken together are not renewed together.
fn pause(ttl: Duration, until_late: Duration) -> Duration {
    let most = (ttl / 3).min(until_late / 2).max(ttl / MOST);
    most - most / 5 + jittered(most / 5)
}

/// A renewal under way; whether the engine renewed.
type Renewing<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Renews `hold` from `renew_at` on until it ends or is lost, and signals the loss by its deadline.
///
/// A renewal without an answer in time has failed, and another one is sent. The first goes on beside it until it is
/// answered or the other one has failed, too: a server that is short of time answers over an open connection long before
/// it has opened another one. Its deadline counts from its own send.
pub(crate) async fn keep(hold: Arc<Hold>, mut renew_at: Moment) {
    let mut told_by_engine =
        hold.backend.lost(&hold.grant).unwrap_or_else(|| Box::pin(std::future::pending()));
    let mut late: Option<Renewing<'_>> = None;
    loop {
        if let GuardState::Lost { cause } = hold.state() {
            drop(late);
            return settle::after_loss(&hold, cause).await;
        }
        if hold.clock.now() >= renew_at {
            let mut renewing: Renewing<'_> = Box::pin(renewed(&hold));
            let renewed = tokio::select! {
                // The answer first: after a stop it and the end of our patience are there together.
                biased;
                renewed = &mut renewing => {
                    late = late.filter(|_| !renewed);
                    renewed
                }
                true = answer_of(&mut late) => {
                    late = Some(renewing);
                    true
                }
                cause = &mut told_by_engine => {
                    hold.lose(cause);
                    continue;
                }
                () = hold.nudge.notified() => continue,
                () = hold.clock.sleep_until(patience(&hold)) => {
                    hold.renewal_failed();
                    late = Some(renewing);
                    false
                }
            };
            let now = hold.clock.now();
            let pause = if renewed { renewal_pause(&hold, now) } else { jittered(hold.grant.ttl / 10) };
            renew_at = now + pause;
            continue;
        }
        let (deadline, _) = hold.deadline();
        tokio::select! {
            cause = &mut told_by_engine => { hold.lose(cause); }
            () = hold.nudge.notified() => {}
            true = answer_of(&mut late) => {
                let now = hold.clock.now();
                renew_at = now + renewal_pause(&hold, now);
            }
            () = hold.clock.sleep_until(deadline.min(renew_at)) => {}
        }
    }
}

/// Renews once; whether the engine renewed.
async fn renewed(hold: &Hold) -> bool {
    match AssertUnwindSafe(hold.renew(None)).catch_unwind().await {
        Ok(renewed) => renewed.is_ok(),
        // A driver that panics has not renewed.
        Err(_) => {
            hold.renewal_failed();
            false
        }
    }
}

/// The answer to a renewal that was late, if there is one under way. Nothing is under way afterwards.
async fn answer_of(late: &mut Option<Renewing<'_>>) -> bool {
    let Some(renewing) = late else { return std::future::pending().await };
    let renewed = renewing.await;
    *late = None;
    renewed
}

/// How long a renewal may take before it counts as failed and is tried again.
pub(crate) fn patience(hold: &Hold) -> Moment {
    let (deadline, _) = hold.deadline();
    deadline.min(hold.clock.now() + hold.grant.ttl / 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(12);

    #[test]
    fn a_guard_is_renewed_after_a_third_of_its_ttl_and_before_that_is_late() {
        for (until_late, most) in
            [(3600, 4000), (12, 4000), (8, 4000), (6, 3000), (4, 2000), (1, 600), (0, 600)]
        {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let pause = pause(TTL, Duration::from_secs(until_late));
                assert!((most * 8 / 10..=most).contains(&pause), "{pause:?} of {until_late} s");
            }
        }
    }
}
