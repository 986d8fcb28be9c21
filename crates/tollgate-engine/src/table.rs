//! The locks, and at each lock one queue of claims. Keeps order and finds things; decides nothing.

use std::time::Duration;

use tollgate_types::{LockName, Mode, Moment, OnDeadlock, OwnerId, Token};

use crate::arena::{Arena, Key};
use crate::command::Claim;
use crate::index::{Index, hash_of};
use crate::party::Standing;

pub(crate) struct Table<D> {
    pub(crate) locks: Arena<Lock<D>>,
    pub(crate) places: Arena<Place<D>>,
    pub(crate) names: Index<Lock<D>>,
    /// Every place but those that were alone when they joined: such a place is first in its queue until it
    /// leaves, so it is found without an index, and most locks never have a second claim.
    pub(crate) owners: Index<Place<D>>,
    /// How many places there have ever been, to tell who came first across locks.
    joined: u64,
    pub(crate) holders: usize,
    /// How many of those who wait want to know of a circle.
    pub(crate) detecting: usize,
}

/// A lock that somebody holds or waits for, or whose lock-delay is running.
///
/// The holders are always the first in the queue, because a claim is only granted together with all those
/// ahead of it.
pub(crate) struct Lock<D> {
    pub(crate) name: LockName,
    pub(crate) first: Option<Key<Place<D>>>,
    pub(crate) last: Option<Key<Place<D>>>,
    pub(crate) first_waiting: Option<Key<Place<D>>>,
    pub(crate) holders: u32,
    pub(crate) claims: u32,
    /// How many holders have left, to tell a waiter how far it has come.
    served: u32,
    /// Nobody is granted this lock before.
    pub(crate) free_from: Moment,
}

/// A claim in its lock's queue.
pub(crate) struct Place<D> {
    pub(crate) owner: OwnerId,
    pub(crate) lock: Key<Lock<D>>,
    pub(crate) mode: Mode,
    pub(crate) state: State,
    /// Whether an operator asked the holder to leave.
    pub(crate) asked_to_leave: bool,
    /// When the claim is lost unless it is extended: the end of time for a waiter without a wait lease.
    pub(crate) due: Moment,
    pub(crate) lock_delay: Duration,
    pub(crate) party: Option<Key<Standing<D>>>,
    pub(crate) on_deadlock: OnDeadlock,
    pub(crate) details: D,
    /// Smaller than that of every claim that joined any queue later.
    pub(crate) order: u64,
    pub(crate) before: Option<Key<Place<D>>>,
    pub(crate) after: Option<Key<Place<D>>>,
    /// How many places were ahead on arrival, plus the holders that the lock had served by then.
    ticket: u32,
    pub(crate) indexed: bool,
}

/// Whether a claim has been granted.
#[derive(Clone, Copy)]
pub(crate) enum State {
    Waiting { ttl: Duration, lease: Option<Duration> },
    Holding { token: Token, since: Moment, ttl: Duration },
}

impl<D> Table<D> {
    pub(crate) const fn new() -> Self {
        Self {
            locks: Arena::new(),
            places: Arena::new(),
            names: Index::new(),
            owners: Index::new(),
            joined: 0,
            holders: 0,
            detecting: 0,
        }
    }

    pub(crate) fn find_lock(&self, name: &LockName) -> Option<Key<Lock<D>>> {
        self.names.find(hash_of(name), |key| self.locks[key].name == *name)
    }

    pub(crate) fn find_place(&self, lock: Key<Lock<D>>, owner: OwnerId) -> Option<Key<Place<D>>> {
        let first = self.locks[lock].first?;
        if self.places[first].owner == owner {
            return Some(first);
        }
        self.owners.find(hash_of((lock, owner)), |key| {
            let place = &self.places[key];
            place.owner == owner && place.lock == lock
        })
    }

    /// The place of `owner` in the queue of `lock`.
    pub(crate) fn find_place_of(&self, lock: &Lock<D>, owner: OwnerId) -> Option<Key<Place<D>>> {
        self.queue(lock).find(|(_, place)| place.owner == owner).map(|(key, _)| key)
    }

    /// Adds a lock that nobody has claimed yet.
    pub(crate) fn open(&mut self, name: LockName) -> Key<Lock<D>> {
        let hash = hash_of(&name);
        let lock = self.locks.insert(Lock {
            name,
            first: None,
            last: None,
            first_waiting: None,
            holders: 0,
            claims: 0,
            served: 0,
            free_from: Moment::ZERO,
        });
        self.names.insert(hash, lock);
        lock
    }

    /// Forgets a lock without claims.
    pub(crate) fn close(&mut self, lock: Key<Lock<D>>) {
        let name = self.locks.remove(lock).name;
        self.names.remove(hash_of(&name), lock);
    }

    /// Puts a claim at the end of the queue, waiting.
    pub(crate) fn join(
        &mut self,
        key: Key<Lock<D>>,
        claim: Claim<D>,
        party: Option<Key<Standing<D>>>,
    ) -> Key<Place<D>> {
        let lock = &mut self.locks[key];
        let indexed = lock.claims > 0;
        self.joined += 1;
        let place = self.places.insert(Place {
            owner: claim.owner,
            lock: key,
            mode: claim.mode,
            state: State::Waiting { ttl: claim.ttl, lease: claim.wait_lease },
            asked_to_leave: false,
            due: Moment::MAX,
            lock_delay: claim.lock_delay,
            party,
            on_deadlock: claim.on_deadlock,
            details: claim.details,
            order: self.joined,
            before: lock.last,
            after: None,
            ticket: lock.served.wrapping_add(lock.claims),
            indexed,
        });
        match lock.last.replace(place) {
            Some(last) => self.places[last].after = Some(place),
            None => lock.first = Some(place),
        }
        lock.first_waiting.get_or_insert(place);
        lock.claims += 1;
        self.detecting += usize::from(claim.on_deadlock == OnDeadlock::Detect);
        if indexed {
            self.owners.insert(hash_of((key, claim.owner)), place);
        }
        place
    }

    /// Makes the first waiting place of its lock a holder.
    pub(crate) fn promote(&mut self, key: Key<Place<D>>, token: Token, since: Moment) {
        let place = &mut self.places[key];
        if let State::Waiting { ttl, .. } = place.state {
            place.state = State::Holding { token, since, ttl };
        }
        self.detecting -= usize::from(place.on_deadlock == OnDeadlock::Detect);
        let lock = &mut self.locks[place.lock];
        lock.first_waiting = place.after;
        lock.holders += 1;
        self.holders += 1;
    }

    /// Takes a place out of its queue, wherever it stands.
    pub(crate) fn leave(&mut self, key: Key<Place<D>>) -> Place<D> {
        let place = self.places.remove(key);
        let lock = &mut self.locks[place.lock];
        match place.before {
            Some(before) => self.places[before].after = place.after,
            None => lock.first = place.after,
        }
        match place.after {
            Some(after) => self.places[after].before = place.before,
            None => lock.last = place.before,
        }
        match place.state {
            State::Holding { .. } => {
                lock.holders -= 1;
                lock.served = lock.served.wrapping_add(1);
                self.holders -= 1;
            }
            State::Waiting { .. } => {
                self.detecting -= usize::from(place.on_deadlock == OnDeadlock::Detect);
                if lock.first_waiting == Some(key) {
                    lock.first_waiting = place.after;
                }
            }
        }
        lock.claims -= 1;
        if place.indexed {
            self.owners.remove(hash_of((place.lock, place.owner)), key);
        }
        place
    }

    /// How many places are ahead of this one, at most: waiters that left from the middle still count, or
    /// every question would walk the queue.
    pub(crate) fn ahead(&self, place: &Place<D>) -> usize {
        let lock = &self.locks[place.lock];
        let ahead = place.ticket.wrapping_sub(lock.served).min(lock.claims - 1);
        ahead as usize
    }

    /// The queue of a lock, holders first.
    pub(crate) fn queue(&self, lock: &Lock<D>) -> impl Iterator<Item = (Key<Place<D>>, &Place<D>)> {
        let at = |key: Option<Key<Place<D>>>| key.map(|key| (key, &self.places[key]));
        std::iter::successors(at(lock.first), move |(_, place)| at(place.after))
    }
}
