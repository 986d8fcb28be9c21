//! Renewal: what the keeper does for one guard, from its first due moment to its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_types::Moment;

use crate::backend::LossCause;
use crate::capabilities::Liveness;
use crate::clock::Clock;
use crate::hold::{GuardState, Hold};
use crate::keeper::Keeper;
use crate::wait::jittered;

/// The guards whose first renewal is not due yet, by that moment.
///
/// Most locks are held for a moment only. They come and go here without waking the keeper's thread; a guard
/// gets a task of its own when it is first due.
pub(crate) struct Agenda {
    keeper: Keeper,
    clock: Arc<dyn Clock>,
    due: Mutex<Due>,
    changed: Notify,
}

#[derive(Default)]
struct Due {
    holds: BTreeMap<Slot, Arc<Hold>>,
    next_id: u64,
    closed: bool,
}

/// Where a guard stands in the agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(Moment, u64);

impl Agenda {
    pub(crate) fn start(keeper: Keeper, clock: Arc<dyn Clock>) -> Arc<Self> {
        let agenda =
            Arc::new(Self { keeper: keeper.clone(), clock, due: Mutex::default(), changed: Notify::new() });
        keeper.spawn(agenda.clone().serve());
        agenda
    }

    /// Has `hold` kept from now on. The slot is needed to stop early.
    pub(crate) fn add(&self, hold: &Arc<Hold>) -> Option<Slot> {
        if hold.backend.lost(&hold.grant).is_some() {
            self.keeper.spawn(keep(hold.clone(), first_wake(hold)));
            return None;
        }
        let when = first_wake(hold);
        let (slot, is_first) = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.next_id += 1;
            let slot = Slot(when, due.next_id);
            due.holds.insert(slot, hold.clone());
            (slot, due.holds.first_key_value().is_some_and(|(first, _)| *first == slot))
        };
        if is_first {
            self.changed.notify_one();
        }
        Some(slot)
    }

    /// Forgets the guard in `slot`, if its task has not started yet.
    pub(crate) fn remove(&self, slot: Slot) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).holds.remove(&slot);
    }

    /// Lets the agenda's task end once nothing is left to keep.
    pub(crate) fn close(&self) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_one();
    }

    async fn serve(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let (ready, next) = {
                let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
                let later = due.holds.split_off(&Slot(now, u64::MAX));
                let ready = std::mem::replace(&mut due.holds, later);
                if ready.is_empty() && due.closed && due.holds.is_empty() {
                    return;
                }
                (ready, due.holds.first_key_value().map(|(slot, _)| slot.0))
            };
            for hold in ready.into_values() {
                self.keeper.spawn(keep(hold, now));
            }
            let due = async {
                match next {
                    Some(when) => self.clock.sleep_until(when).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

/// When a guard first needs the keeper.
fn first_wake(hold: &Hold) -> Moment {
    let (deadline, _) = hold.deadline();
    if hold.is_renewed() { deadline.min(hold.clock.now() + renewal_pause(hold)) } else { deadline }
}

/// A third of the ttl, a little less for some, so that guards taken together are not renewed together.
fn renewal_pause(hold: &Hold) -> Duration {
    let third = hold.grant.ttl / 3;
    third - third / 5 + jittered(third / 5)
}

/// Renews `hold` from `renew_at` on until it ends or is lost, and signals the loss by its deadline.
async fn keep(hold: Arc<Hold>, mut renew_at: Moment) {
    let mut told_by_engine =
        hold.backend.lost(&hold.grant).unwrap_or_else(|| Box::pin(std::future::pending()));
    loop {
        if let GuardState::Lost { cause } = hold.state() {
            return give_back(&hold, cause).await;
        }
        if hold.is_renewed() && hold.clock.now() >= renew_at {
            let renewed = tokio::select! {
                renewed = hold.renew() => renewed.is_ok(),
                () = hold.clock.sleep_until(patience(&hold, hold.deadline().0)) => false,
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

/// How long a request may take before it counts as failed and is tried again.
fn patience(hold: &Hold, deadline: Moment) -> Moment {
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

/// Repeats a release until the engine answers, or the ttl has passed and the engine has forgotten.
pub(crate) async fn release_until_answered(hold: &Hold) {
    let until = hold.clock.now() + hold.grant.ttl;
    let mut pause = Duration::from_millis(20);
    loop {
        let answered = tokio::select! {
            answer = hold.backend.release(&hold.grant) => answer.is_ok(),
            () = hold.clock.sleep_until(patience(hold, until)) => false,
        };
        if answered || hold.clock.now() >= until {
            return;
        }
        hold.clock.sleep_until(hold.clock.now() + jittered(pause)).await;
        pause = (pause * 2).min(hold.grant.ttl / 3);
    }
}
