//! What must always be true of an engine between two commands. For tests.

use tollgate_types::{Moment, OnDeadlock};

use crate::arena::Key;
use crate::engine::Engine;
use crate::table::{Lock, Place, State};

impl<D> Engine<D> {
    /// Panics unless everything the engine keeps agrees with everything else, and with the one rule as
    /// [`Mode::joins`](tollgate_types::Mode::joins) states it. Walks all claims, several times: for tests.
    pub fn check_consistency(&self) {
        let table = &self.table;
        let mut claims = 0;
        for lock in table.locks.iter() {
            let key = table.find_lock(&lock.name).expect("a lock is found by its name");
            assert!(std::ptr::eq(&table.locks[key], lock), "{:?} has two records", lock.name);
            self.check_lock(key, lock);
            claims += lock.claims as usize;
        }
        assert_eq!(claims, table.places.len(), "every claim is in a queue");
        assert_eq!(table.names.len(), table.locks.len(), "every name leads to a lock");
        let indexed = table.places.iter().filter(|place| place.indexed).count();
        assert_eq!(table.owners.len(), indexed, "every owner leads to a claim");
        let holding = |state: &State| matches!(state, State::Holding { .. });
        assert_eq!(table.holders, table.places.iter().filter(|place| holding(&place.state)).count());
        let waits = |place: &&Place<D>| !holding(&place.state);
        let detects = |place: &Place<D>| place.on_deadlock == OnDeadlock::Detect;
        assert_eq!(table.detecting, table.places.iter().filter(waits).filter(|place| detects(place)).count());
        let in_parties = table.places.iter().filter(waits).filter(|place| place.party.is_some()).count();
        let listed = self.parties.standings.iter().map(|standing| standing.waiting.len()).sum::<usize>();
        assert_eq!(listed, in_parties, "a party knows which of its claims wait");
        assert!(self.suspects.is_empty(), "every party that may be in a cycle was examined");
        assert!(self.alarms.len() <= table.places.len(), "every alarm is for a claim");
        let delayed = table.locks.iter().filter(|lock| lock.free_from > self.now).count();
        assert_eq!(self.delays.len(), delayed, "every lock-delay is for a lock");
    }

    fn check_lock(&self, key: Key<Lock<D>>, lock: &Lock<D>) {
        let (name, delayed) = (&lock.name, lock.free_from > self.now);
        assert!(lock.claims > 0 || delayed, "{name:?} is idle and was kept");
        assert!(
            !delayed || self.delays.contains(&(lock.free_from, key)),
            "no timer ends the lock-delay of {name:?}"
        );

        let (mut ahead, mut before, mut first_waiting, mut holders) = (Vec::new(), None, None, 0);
        for (place_key, place) in self.table.queue(lock) {
            assert_eq!(place.before, before, "the queue of {name:?} is linked both ways");
            assert_eq!(self.table.find_place(key, place.owner), Some(place_key), "an owner finds its claim");
            if place.due < Moment::MAX {
                let alarm = self.alarms.of(place_key);
                assert!(alarm.is_some_and(|at| at <= place.due), "no timer is set for a claim on {name:?}");
            }
            let joins = place.mode.joins(ahead.iter().copied());
            match place.state {
                State::Holding { .. } => {
                    assert!(first_waiting.is_none() && joins, "a holder of {name:?} should wait");
                    holders += 1;
                }
                State::Waiting { .. } => {
                    let held_up = !joins || delayed || self.tokens.are_exhausted() || !self.is_granting;
                    assert!(held_up, "a claim waits for {name:?} though nothing blocks it");
                    first_waiting = first_waiting.or(Some(place_key));
                }
            }
            ahead.push(place.mode);
            before = Some(place_key);
        }
        assert_eq!((lock.first_waiting, lock.last), (first_waiting, before), "{name:?} knows its queue");
        assert_eq!((lock.holders, lock.claims as usize), (holders, ahead.len()), "{name:?} counts its queue");
    }
}
