//! Renewal: what the keeper does for one guard, from its first due moment to its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_types::Moment;

use crate::backend::{Backend, LossCause};
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

struct Due {
    holds: BTreeMap<Slot, Entry>,
    next_id: u64,
    closed: bool,
    /// When the agenda's task looks next. It need not be woken for what is due later, and most of what was
    /// due is gone by then.
    armed: Moment,
}

struct Entry {
    hold: Arc<Hold>,
    renew_at: Moment,
}

/// Where a guard stands in the agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(Moment, u64);

/// How long a guard must live until anybody listens for what its engine tells unasked.
const LISTEN_AFTER: Duration = Duration::from_millis(20);

impl Agenda {
    pub(crate) fn start(keeper: Keeper, clock: Arc<dyn Clock>) -> Arc<Self> {
        let due = Due { holds: BTreeMap::new(), next_id: 0, closed: false, armed: Moment::MAX };
        let agenda =
            Arc::new(Self { keeper: keeper.clone(), clock, due: Mutex::new(due), changed: Notify::new() });
        keeper.spawn(agenda.clone().serve());
        agenda
    }

    /// Has `hold` kept from now on. The slot is needed to stop early.
    pub(crate) fn add(&self, hold: &Arc<Hold>) -> Slot {
        let renew_at = first_renewal(hold);
        let mut when = renew_at.min(hold.deadline().0);
        if hold.backend.capabilities().liveness != Liveness::Lease {
            when = when.min(self.clock.now() + LISTEN_AFTER);
        }
        let mut due = self.due();
        due.next_id += 1;
        let slot = Slot(when, due.next_id);
        due.holds.insert(slot, Entry { hold: hold.clone(), renew_at });
        if when < due.armed {
            due.armed = when;
            drop(due);
            self.changed.notify_one();
        }
        slot
    }

    /// Forgets the guard in `slot`, if its task has not started yet.
    pub(crate) fn remove(&self, slot: Slot) {
        self.due().holds.remove(&slot);
    }

    /// Lets the agenda's task end once nothing is left to keep.
    pub(crate) fn close(&self) {
        self.due().closed = true;
        self.changed.notify_one();
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let (ready, next) = {
                let mut due = self.due();
                let later = due.holds.split_off(&Slot(now, u64::MAX));
                let ready = std::mem::replace(&mut due.holds, later);
                if ready.is_empty() && due.closed && due.holds.is_empty() {
                    return;
                }
                due.armed = due.holds.first_key_value().map_or(Moment::MAX, |(slot, _)| slot.0);
                (ready, due.armed)
            };
            for entry in ready.into_values() {
                self.keeper.spawn(keep(entry.hold, entry.renew_at));
            }
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

/// When a guard is first renewed.
fn first_renewal(hold: &Hold) -> Moment {
    if hold.is_renewed() { hold.clock.now() + renewal_pause(hold) } else { Moment::MAX }
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
        if hold.clock.now() >= renew_at {
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

/// Repeats a release until the engine answers, or has forgotten the grant by itself.
pub(crate) async fn release_until_answered(hold: &Hold) {
    let until = forgotten_after(&*hold.backend, &*hold.clock, hold.grant.ttl);
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

/// When an engine has forgotten a claim that nobody renews: a lease after its ttl. A session that other
/// locks keep alive, or a process that lives on, never does.
pub(crate) fn forgotten_after(backend: &dyn Backend, clock: &dyn Clock, ttl: Duration) -> Moment {
    match backend.capabilities().liveness {
        Liveness::Lease => clock.now() + ttl,
        Liveness::Session | Liveness::Process => Moment::MAX,
    }
}
