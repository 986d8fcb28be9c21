//! Renewal: what the keeper does for one guard, from its first due moment to its end.

use std::sync::Arc;
use std::time::Duration;

use tollgate_types::Moment;

use crate::backend::{Backend, BoxFuture, LossCause};
use crate::capabilities::Liveness;
use crate::clock::Clock;
use crate::hold::{GuardState, Hold};
use crate::wait::jittered;

/// When a guard is first renewed.
pub(crate) fn first_renewal(hold: &Hold) -> Moment {
    if hold.is_renewed() { hold.clock.now() + renewal_pause(hold) } else { Moment::MAX }
}

/// A third of the ttl, a little less for some, so that guards taken together are not renewed together.
fn renewal_pause(hold: &Hold) -> Duration {
    let third = hold.grant.ttl / 3;
    third - third / 5 + jittered(third / 5)
}

/// Renews `hold` from `renew_at` on until it ends or is lost, and signals the loss by its deadline.
pub(crate) async fn keep(hold: Arc<Hold>, mut renew_at: Moment) {
    let mut told_by_engine =
        hold.backend.lost(&hold.grant).unwrap_or_else(|| Box::pin(std::future::pending()));
    loop {
        if let GuardState::Lost { cause } = hold.state() {
            return give_back(&hold, cause).await;
        }
        if hold.clock.now() >= renew_at {
            let renewed = tokio::select! {
                renewed = hold.renew() => renewed.is_ok(),
                () = hold.clock.sleep_until(patience(&hold)) => false,
                () = hold.nudge.notified() => continue,
            };
            let pause = if renewed {
                renewal_pause(&hold)
            } else {
                hold.jeopardise();
                jittered(hold.grant.ttl / 10)
            };
            renew_at = hold.clock.now() + pause;
            continue;
        }
        let (deadline, _) = hold.deadline();
        tokio::select! {
            cause = &mut told_by_engine => { hold.lose(cause); }
            () = hold.nudge.notified() => {}
            () = hold.clock.sleep_until(deadline.min(renew_at)) => {}
        }
    }
}

/// How long a renewal may take before it counts as failed and is tried again.
fn patience(hold: &Hold) -> Moment {
    let (deadline, _) = hold.deadline();
    deadline.min(hold.clock.now() + hold.grant.ttl / 6)
}

/// After a loss the engine may still have the grant: a renewal that came late, or a lock given up by
/// `max_hold` or `stall_after`. Give it back, so that the next does not wait for nothing.
///
/// A lock whose holder was asked to leave is the holder's to release: something may still hang on it. One
/// with a lock-delay is left to expire: a release would open the name at once.
async fn give_back(hold: &Hold, cause: LossCause) {
    let cooperative =
        cause == LossCause::Revoked && hold.backend.capabilities().liveness == Liveness::Process;
    let expires = hold.has_lock_delay();
    if cooperative
        || expires
        || matches!(cause, LossCause::Released | LossCause::Gone | LossCause::SessionEnded)
    {
        return;
    }
    release_until_answered(hold).await;
}

/// Repeats a release until the engine answers, or has forgotten the grant by itself.
pub(crate) async fn release_until_answered(hold: &Hold) {
    let until = forgotten_after(&*hold.backend, &*hold.clock, hold.grant.ttl);
    until_answered(&*hold.clock, until, hold.grant.ttl, || {
        Box::pin(async { hold.backend.release(&hold.grant).await.is_ok() })
    })
    .await;
}

/// Repeats a request that acts by owner id, and so may be repeated, until it is answered or `until` has come.
pub(crate) async fn until_answered<'a>(
    clock: &dyn Clock,
    until: Moment,
    ttl: Duration,
    request: impl Fn() -> BoxFuture<'a, bool>,
) {
    let mut pause = Duration::from_millis(20);
    loop {
        let answered = tokio::select! {
            answered = request() => answered,
            () = clock.sleep_until(until.min(clock.now() + ttl / 3)) => false,
        };
        if answered || clock.now() >= until {
            return;
        }
        clock.sleep_until(clock.now() + jittered(pause)).await;
        pause = (pause * 2).min(ttl / 3);
    }
}

/// When an engine has forgotten a claim that nobody renews: a lease after its ttl. A session that other
/// locks keep alive, or a process that lives on, never does.
pub(crate) fn forgotten_after(backend: &dyn Backend, clock: &dyn Clock, ttl: Duration) -> Moment {
    match backend.capabilities().liveness {
        Liveness::Lease => clock.now() + ttl,
        Liveness::Session | Liveness::Process => Moment::MAX,
    }
}
