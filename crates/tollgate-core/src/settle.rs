//! What is owed to the engine when a hold or a claim is over: the one place that decides it.
//!
//! | why it is over | what the engine is told |
//! | --- | --- |
//! | the user released or dropped the guard | it is released, at once |
//! | the engine said so (gone, session ended) | nothing: it knows |
//! | the holder was asked to leave (revoked) | it is released when the guard is dropped, in a session by its deadline at the latest |
//! | its deadline passed, or `max_hold`, or `stall_after` | it is released a margin later, so that those who were told have time to stop |
//! | the same, with a lock-delay | nothing: a release would open the name at once |
//!
//! A guard that is dropped after its loss has stopped, and need not wait for the margin.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tollgate_types::{LockName, Moment};

use crate::backend::{Backend, BoxFuture, LossCause, Note};
use crate::capabilities::Liveness;
use crate::clock::Clock;
use crate::grant::Deadline;
use crate::hold::{GuardState, Hold};
use crate::wait::jittered;

/// After a loss that the keeper noticed.
pub(crate) async fn after_loss(hold: &Hold, cause: LossCause) {
    if let LossCause::Expired | LossCause::MaxHold | LossCause::Stalled = cause
        && !hold.grant.has_lock_delay()
    {
        hold.clock.sleep_until(hold.deadline().0 + Deadline::margin(hold.grant.ttl)).await;
        release(hold).await;
    }
    // A session that goes on for other locks would keep this one, too, if the guard stays in the program's hands.
    if cause == LossCause::Revoked && hold.backend.capabilities().liveness == Liveness::Session {
        hold.clock.sleep_until(hold.lease_end() + Deadline::margin(hold.grant.ttl)).await;
        release(hold).await;
    }
}

/// Whether a guard that ends in the state `before` has something to release.
pub(crate) fn is_owed(hold: &Hold, before: GuardState) -> bool {
    match before {
        GuardState::Held | GuardState::Jeopardy => true,
        GuardState::Lost { cause: LossCause::Released } => true,
        GuardState::Lost { .. } => !hold.grant.has_lock_delay(),
    }
}

/// Repeats a release until the engine answers, or has forgotten the grant by itself.
pub(crate) async fn release(hold: &Hold) {
    let until = forgotten_after(&*hold.backend, &*hold.clock, hold.grant.ttl);
    let owed = Owed { backend: &*hold.backend, name: &hold.grant.name, ttl: hold.grant.ttl };
    until_answered(&*hold.clock, until, owed, || {
        Box::pin(async {
            let renewed = hold.as_renewed();
            hold.backend.release(renewed.as_deref().unwrap_or(&hold.grant)).await.is_ok()
        })
    })
    .await;
}

/// Releases what an engine can give back on the spot that looks for circles: whoever drops a lock and asks for another would
/// still seem to have the first one.
pub(crate) fn is_released_at_once(hold: &Hold) -> bool {
    let renewed = hold.as_renewed();
    let grant = renewed.as_deref().unwrap_or(&hold.grant);
    if !hold.backend.capabilities().detect {
        return false;
    }
    // A driver that panics has not answered.
    let released =
        AssertUnwindSafe(async { hold.backend.release(grant).await }).catch_unwind().now_or_never();
    matches!(released, Some(Ok(Ok(_))))
}

/// A release or withdrawal that the engine has to answer.
pub(crate) struct Owed<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) name: &'a LockName,
    pub(crate) ttl: Duration,
}

/// Tells that something owed is not answered, and when it is no longer so, also by a panic.
struct Stuck<'a>(Owed<'a>);

impl<'a> Stuck<'a> {
    fn note(owed: Owed<'a>) -> Self {
        owed.backend.note(&Note::Stuck(owed.name));
        Self(owed)
    }
}

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        self.0.backend.note(&Note::Unstuck(self.0.name));
    }
}

/// Repeats a request that acts by owner id, and so may be repeated, until it is answered or `until` has come. Answers whether
/// it was answered.
pub(crate) async fn until_answered<'a>(
    clock: &dyn Clock,
    until: Moment,
    owed: Owed<'_>,
    request: impl Fn() -> BoxFuture<'a, bool>,
) -> bool {
    let ttl = owed.ttl;
    let mut pause = Duration::from_millis(20);
    let (mut owed, mut _stuck) = (Some(owed), None);
    loop {
        let answered = tokio::select! {
            // The request first: after a stop its answer and the end of our patience are there together.
            biased;
            // A driver that panics has not answered.
            answered = AssertUnwindSafe(request()).catch_unwind() => answered.unwrap_or(false),
            () = clock.sleep_until(until.min(clock.now() + ttl / 3)) => false,
        };
        if answered || clock.now() >= until {
            return answered;
        }
        if let Some(owed) = owed.take() {
            _stuck = Some(Stuck::note(owed));
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
