//! What is lost because its time has come.

use crate::arena::Key;
use crate::effect::Event;
use crate::engine::Engine;
use crate::table::{Lock, Place, State};

impl<D> Engine<D> {
    /// Does all that is due by now. First everything whose time has come is removed, in the order in which
    /// it came due and then in that of the claims; only then is anybody granted, or a waiter could be handed
    /// a lock after its own time was up.
    pub(crate) fn expire_due(&mut self, events: &mut Vec<Event>) {
        // Once more if a grant was for no time at all and is due already.
        while self.next_expiry().is_some_and(|next| next <= self.now) {
            let mut touched = self.end_delays();
            for key in self.collect_due() {
                touched.push(self.table.places[key].lock);
                self.expire(key, events);
            }
            self.settle_all(touched, events);
        }
    }

    fn end_delays(&mut self) -> Vec<Key<Lock<D>>> {
        let mut ended = Vec::new();
        while let Some(&(end, lock)) = self.delays.first().filter(|(end, _)| *end <= self.now) {
            self.delays.remove(&(end, lock));
            ended.push(lock);
        }
        ended
    }

    /// The claims whose time is up. An alarm that rang for an extended lease is set anew.
    fn collect_due(&mut self) -> Vec<Key<Place<D>>> {
        let mut due = Vec::new();
        while let Some(key) = self.alarms.pop_due(self.now) {
            let until = self.table.places[key].due;
            if until <= self.now {
                due.push(key);
            } else {
                self.alarms.ring_by(key, until);
            }
        }
        due.sort_unstable_by_key(|&key| {
            let place = &self.table.places[key];
            (place.due, place.order)
        });
        due
    }

    fn expire(&mut self, key: Key<Place<D>>, events: &mut Vec<Event>) {
        let place = self.remove(key);
        let name = self.table.locks[place.lock].name.clone();
        events.push(match place.state {
            State::Holding { token, .. } => {
                self.delay(&place, place.due);
                Event::Expired { name, owner: place.owner, token }
            }
            State::Waiting { .. } => Event::Abandoned { name, owner: place.owner },
        });
    }

    /// Settles locks in the order of their first waiting claims: of two that have waited for different
    /// locks, the one that came first gets the smaller token.
    pub(crate) fn settle_all(&mut self, mut locks: Vec<Key<Lock<D>>>, events: &mut Vec<Event>) {
        locks.sort_unstable();
        locks.dedup();
        let first_waiting = |lock: &Key<Lock<D>>| self.table.locks[*lock].first_waiting;
        locks.sort_by_key(|lock| first_waiting(lock).map(|key| self.table.places[key].order));
        for lock in locks {
            self.settle(lock, events);
        }
    }
}
