//! The agenda: which guards will need the keeper, and when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_types::Moment;

use crate::capabilities::Liveness;
use crate::clock::Clock;
use crate::hold::Hold;
use crate::keep::{first_renewal, keep};
use crate::keeper::Keeper;

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
