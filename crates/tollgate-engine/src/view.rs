//! What can be looked at: locks with their holders and waiters, never whose owner id.

use std::time::Duration;

use tollgate_types::{LockName, Mode, Moment, OwnerId, PartyId, Token};

use crate::engine::Engine;
use crate::table::{Lock, State};

/// One lock as it stands after the last command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView<'a, D> {
    /// Which lock.
    pub name: &'a LockName,
    /// Who holds it, in the order of the queue.
    pub holders: Vec<HolderView<'a, D>>,
    /// Who waits for it, in the order of the queue.
    pub waiters: Vec<WaiterView<'a, D>>,
    /// The end of a lock-delay that was running at the last command; nobody is granted the lock before.
    pub delayed_until: Option<Moment>,
}

/// One holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderView<'a, D> {
    /// How it holds the lock.
    pub mode: Mode,
    /// The number of its passage.
    pub token: Token,
    /// Since when it holds the lock.
    pub since: Moment,
    /// When its lease ends unless extended.
    pub expires: Moment,
    /// The party of the claim, if it has one.
    pub party: Option<PartyId>,
    /// What the caller keeps about it.
    pub details: &'a D,
}

/// One claim that waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiterView<'a, D> {
    /// How it wants to hold the lock.
    pub mode: Mode,
    /// The party of the claim, if it has one.
    pub party: Option<PartyId>,
    /// What the caller keeps about it.
    pub details: &'a D,
}

/// How long a grant may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The longest time to live that it was given.
    pub ttl: Duration,
    /// How long nothing is granted after its loss.
    pub lock_delay: Duration,
    /// When its lease ends unless it is extended.
    pub expires: Moment,
}

impl<D> Engine<D> {
    /// Who holds and who waits for a lock; `None` if nobody does and no lock-delay is running.
    pub fn inspect(&self, name: &LockName) -> Option<LockView<'_, D>> {
        self.table.find_lock(name).map(|lock| self.view(&self.table.locks[lock]))
    }

    /// The grant of a claim: its token, and what the caller keeps about it. `None` while the claim waits.
    pub fn grant_of(&self, name: &LockName, owner: OwnerId) -> Option<(Token, &D)> {
        let place = &self.table.places[self.find(name, owner)?];
        match place.state {
            State::Holding { token, .. } => Some((token, &place.details)),
            State::Waiting { .. } => None,
        }
    }

    /// How long the grant of a claim lives without an extend, and its lock-delay. `None` while the claim waits.
    pub fn terms(&self, name: &LockName, owner: OwnerId) -> Option<Terms> {
        let place = &self.table.places[self.find(name, owner)?];
        match place.state {
            State::Holding { ttl, .. } => {
                Some(Terms { ttl, lock_delay: place.lock_delay, expires: place.due })
            }
            State::Waiting { .. } => None,
        }
    }

    /// The end of the lock-delay that runs on a lock.
    pub fn delayed_until(&self, name: &LockName) -> Option<Moment> {
        let lock = &self.table.locks[self.table.find_lock(name)?];
        Some(lock.free_from).filter(|&free_from| free_from > self.now)
    }

    /// Whether a claim waits for this lock.
    pub fn is_waited_for(&self, name: &LockName) -> bool {
        self.table.find_lock(name).is_some_and(|lock| self.table.locks[lock].first_waiting.is_some())
    }

    /// The engine's time: the latest that it was told.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Every lock that is not idle and whose name starts with `prefix`, sorted by name. Looks at all names.
    pub fn list(&self, prefix: &str) -> Vec<LockView<'_, D>> {
        let locks = self.table.locks.iter().filter(|lock| lock.name.as_str().starts_with(prefix));
        let mut views: Vec<_> = locks.map(|lock| self.view(lock)).collect();
        views.sort_unstable_by_key(|view| view.name);
        views
    }

    /// The locks at up to `most` positions of the table from `from` on whose names start with
    /// `prefix`, and where the next page begins; `None` at the end. A lock that is not idle
    /// throughout keeps its position, so it is on exactly one page.
    pub fn page(&self, prefix: &str, from: usize, most: usize) -> (Vec<LockView<'_, D>>, Option<usize>) {
        let (locks, next) = self.table.locks.page(from, most);
        let named = locks.filter(|lock| lock.name.as_str().starts_with(prefix));
        (named.map(|lock| self.view(lock)).collect(), next)
    }

    fn view<'a>(&'a self, lock: &'a Lock<D>) -> LockView<'a, D> {
        let mut view = LockView {
            name: &lock.name,
            holders: Vec::with_capacity(lock.holders as usize),
            waiters: Vec::with_capacity((lock.claims - lock.holders) as usize),
            delayed_until: Some(lock.free_from).filter(|&free_from| free_from > self.now),
        };
        for (_, place) in self.table.queue(lock) {
            let (mode, details) = (place.mode, &place.details);
            let party = place.party.map(|key| self.parties.standings[key].id);
            match place.state {
                State::Holding { token, since, .. } => {
                    view.holders.push(HolderView { mode, token, since, expires: place.due, party, details });
                }
                State::Waiting { .. } => view.waiters.push(WaiterView { mode, party, details }),
            }
        }
        view
    }
}
