//! The agenda: which guards will need the keeper, and when.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::Notify;
use tollgate_types::{Moment, OwnerId};

use crate::backend::{BoxStream, LossCause};
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
    due: Mutex<Due<Entry>>,
    changed: Notify,
    /// The guards that have tasks of their own by now.
    kept: Mutex<HashMap<OwnerId, Arc<Hold>>>,
}

/// What will be due, and when the agenda's task looks next.
struct Due<T> {
    entries: BTreeMap<Slot, T>,
    next_id: u64,
    closed: bool,
    /// The task need not be woken for what is due later, and most of what was due is gone by then.
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
const LISTEN_AFTER: Duration = Duration::from_millis(100);

impl<T> Due<T> {
    fn new() -> Self {
        Self { entries: BTreeMap::new(), next_id: 0, closed: false, armed: Moment::MAX }
    }

    /// Enters what is due at `when`. Answers also whether the task has to be woken for it.
    fn enter(&mut self, when: Moment, entry: T) -> (Slot, bool) {
        self.next_id += 1;
        let slot = Slot(when, self.next_id);
        self.entries.insert(slot, entry);
        let is_first = when < self.armed;
        self.armed = self.armed.min(when);
        (slot, is_first)
    }

    /// Takes out what is due `now`, and settles when to look next. Whoever made the task look may have left before it did:
    /// it still looks at the moment that was settled then, or the next to come would have to wake it again.
    fn look(&mut self, now: Moment) -> BTreeMap<Slot, T> {
        let later = self.entries.split_off(&Slot(now, u64::MAX));
        let ready = std::mem::replace(&mut self.entries, later);
        if self.armed <= now {
            self.armed = self.entries.first_key_value().map_or(Moment::MAX, |(slot, _)| slot.0);
        }
        ready
    }
}

impl Agenda {
    pub(crate) fn start(keeper: Keeper, clock: Arc<dyn Clock>) -> Arc<Self> {
        let due = Mutex::new(Due::new());
        let agenda = Arc::new(Self {
            keeper: keeper.clone(),
            clock,
            due,
            changed: Notify::new(),
            kept: Mutex::default(),
        });
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
        let (slot, is_first) = self.due().enter(when, Entry { hold: hold.clone(), renew_at });
        if is_first {
            self.changed.notify_one();
        }
        slot
    }

    /// Forgets the guard in `slot`, if its task has not started yet.
    pub(crate) fn remove(&self, slot: Slot) {
        self.due().entries.remove(&slot);
    }

    /// Lets the agenda's task end once nothing is left to keep.
    pub(crate) fn close(&self) {
        self.due().closed = true;
        self.changed.notify_one();
    }

    fn due(&self) -> MutexGuard<'_, Due<Entry>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<OwnerId, Arc<Hold>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells guards that their locks were revoked, as the engine tells of it.
    pub(crate) async fn hear(self: Arc<Self>, mut revocations: BoxStream<'static, OwnerId>) {
        while let Some(owner) = revocations.next().await {
            // Rare enough to look at everything.
            let due = self
                .due()
                .entries
                .values()
                .find(|entry| entry.hold.grant.owner == owner)
                .map(|entry| entry.hold.clone());
            let hold = due.or_else(|| self.kept().get(&owner).cloned());
            if let Some(hold) = hold {
                hold.lose(LossCause::Revoked);
            }
        }
    }

    async fn serve(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let (ready, next) = {
                let mut due = self.due();
                let ready = due.look(now);
                if ready.is_empty() && due.closed && due.entries.is_empty() {
                    return;
                }
                (ready, due.armed)
            };
            for entry in ready.into_values() {
                let agenda = self.clone();
                self.keeper.spawn(async move {
                    let owner = entry.hold.grant.owner;
                    agenda.kept().insert(owner, entry.hold.clone());
                    let _forget = Forget { agenda: &agenda, owner };
                    keep(entry.hold, entry.renew_at).await;
                });
            }
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

/// Forgets a guard whose task has ended, also by a panic.
struct Forget<'a> {
    agenda: &'a Agenda,
    owner: OwnerId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.agenda.kept().remove(&self.owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn nobody_is_woken_for_what_is_due_after_the_next_look() {
        let mut due = Due::new();
        assert!(due.enter(at(20), "first").1);
        assert!(!due.enter(at(30), "later").1);
        assert!(due.enter(at(10), "sooner").1);
        assert_eq!(due.look(at(25)).into_values().collect::<Vec<_>>(), ["sooner", "first"]);
        assert_eq!(due.armed, at(30));
    }

    #[test]
    fn who_left_before_the_task_looked_spares_the_next_a_wake() {
        let mut due = Due::new();
        let (slot, wakes) = due.enter(at(20), ());
        assert!(wakes);
        due.entries.remove(&slot);
        assert!(due.look(at(1)).is_empty());
        assert!(!due.enter(at(22), ()).1, "the task looks at 20 anyway");
        assert!(due.look(at(20)).is_empty());
        assert_eq!(due.armed, at(22));
    }

    #[test]
    fn an_empty_agenda_is_left_alone() {
        let mut due = Due::new();
        let (slot, _) = due.enter(at(20), ());
        due.entries.remove(&slot);
        assert!(due.look(at(20)).is_empty());
        assert_eq!(due.armed, Moment::MAX);
    }
}
