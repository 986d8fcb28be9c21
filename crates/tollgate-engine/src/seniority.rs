//! Wait-die and wound-wait: who may wait for whom, by age alone.
//!
//! Waiting then only ever goes one way, from the old to the young or from the young to the old, and cannot go in a circle.

use tollgate_types::{Conflict, Mode, OnDeadlock};

use crate::arena::Key;
use crate::command::Claim;
use crate::effect::Event;
use crate::engine::Engine;
use crate::table::{Lock, Place, State};

impl<D> Engine<D> {
    /// Why a claim that cannot be granted now must not wait either, by its own policy.
    pub(crate) fn forbids_to_wait(&self, lock: &Lock<D>, claim: &Claim<D>) -> Option<Conflict> {
        let party = claim.party?;
        let own = (self.parties.age_at(party, self.now), party.id);
        let mut rivals = self.rivals(lock, claim.mode);
        match claim.on_deadlock {
            OnDeadlock::WaitDie => rivals.find_map(|(_, place)| {
                let (age, id) = self.parties.standings[place.party?].seniority();
                if id == party.id {
                    return Some(Conflict::Itself);
                }
                ((age, id) < own).then_some(Conflict::Elder(id))
            }),
            OnDeadlock::WoundWait => {
                let mut permits = 0;
                rivals.find_map(|(_, place)| {
                    if self.parties.standings[place.party?].id != party.id {
                        return None;
                    }
                    let is_permit = place.mode == claim.mode && matches!(place.state, State::Holding { .. });
                    permits += u32::from(is_permit);
                    // Of a semaphore's permits another one may come free, as long as not all of them are its own.
                    let capacity = claim.mode.capacity();
                    (place.mode != claim.mode || capacity == 1 || permits >= capacity)
                        .then_some(Conflict::Itself)
                })
            }
            _ => None,
        }
    }

    /// Removes the younger claims that a claim by wound-wait will not wait for, before it takes its place.
    pub(crate) fn wound(&mut self, lock: Key<Lock<D>>, claim: &Claim<D>, events: &mut Vec<Event>) {
        let Some(party) = claim.party.filter(|_| claim.on_deadlock == OnDeadlock::WoundWait) else { return };
        let own = (self.parties.age_at(party, self.now), party.id);
        let (mut wounded, mut beside, mut staying) = (Vec::new(), Vec::new(), 0);
        for (key, place) in self.rivals(&self.table.locks[lock], claim.mode) {
            let standing = place.party.map(|party| self.parties.standings[party].seniority());
            let younger = standing.filter(|&other| other > own && place.on_deadlock == OnDeadlock::WoundWait);
            match younger {
                None => staying += u32::from(place.mode == claim.mode),
                Some(other) if place.mode == claim.mode && matches!(place.state, State::Holding { .. }) => {
                    beside.push((other, place.order, key));
                }
                Some(_) => wounded.push((place.order, key)),
            }
        }
        // Of a semaphore's holders only as many as it takes, the youngest.
        beside.sort_unstable();
        let room = (claim.mode.capacity() - 1).saturating_sub(staying) as usize;
        wounded.extend(beside.into_iter().skip(room).map(|(_, order, key)| (order, key)));
        wounded.sort_unstable();
        for (_, key) in wounded {
            let place = self.remove(key);
            let (name, owner) = (self.table.locks[lock].name.clone(), place.owner);
            events.push(match place.state {
                State::Holding { token, .. } => {
                    self.delay(&place, self.now);
                    Event::Revoked { name, owner, token }
                }
                State::Waiting { .. } => {
                    Event::Deadlock { name, owner, conflict: Conflict::Wounded(party.id) }
                }
            });
        }
        self.settle(lock, events);
    }

    /// Those in a queue for whom a claim of this mode would wait.
    fn rivals(&self, lock: &Lock<D>, wanted: Mode) -> impl Iterator<Item = (Key<Place<D>>, &Place<D>)> {
        self.table.queue(lock).filter(move |(_, place)| wanted.may_wait_for(place.mode))
    }
}
