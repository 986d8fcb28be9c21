//! What survives a restart: grants and lock-delays, exported and imported, and the switch that stops granting.

use std::time::Duration;

use tollgate_types::{LockName, Mode, Moment, OnDeadlock, OwnerId, Party, Token};

use crate::arena::Key;
use crate::command::Claim;
use crate::effect::Event;
use crate::engine::Engine;
use crate::table::{Lock, Place, State};

/// Everything the engine keeps about a grant, except when it was given and when it expires: after a restart its lease
/// begins again in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredGrant<D> {
    /// The lock.
    pub name: LockName,
    /// The owner id of the claim.
    pub owner: OwnerId,
    /// How the holder shares the lock.
    pub mode: Mode,
    /// The fencing token.
    pub token: Token,
    /// The longest time to live that the grant was given, at first or by an extend.
    pub ttl: Duration,
    /// How long nothing is granted after a loss of this grant.
    pub lock_delay: Duration,
    /// The party with its age.
    pub party: Option<Party>,
    /// The deadlock policy of the claim.
    pub on_deadlock: OnDeadlock,
    /// An operator asked the holder to leave: the lease is not extended any more.
    pub is_revoked: bool,
    /// What the caller keeps about the holder.
    pub details: D,
}

/// A stored grant that cannot be held together with the others: the store is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The lock.
    pub name: LockName,
    /// The token of the grant.
    pub token: Token,
}

impl<D> Engine<D> {
    /// Grants nothing from now on, or grants again: then every waiting claim that is due gets its lock, in the order in
    /// which the claims came. Leases, releases and extends go on meanwhile; a new claim is answered
    /// [`NotGranting`](crate::Answer::NotGranting).
    pub fn set_granting(&mut self, is_granting: bool, now: Moment) -> Vec<Event> {
        self.now = self.now.max(now);
        let mut events = Vec::new();
        self.expire_due(&mut events);
        self.is_granting = is_granting;
        if is_granting {
            let waited_for = self.table.locks.iter().filter(|lock| lock.first_waiting.is_some());
            let keys = waited_for.filter_map(|lock| self.table.find_lock(&lock.name)).collect();
            self.settle_all(keys, &mut events);
        }
        events
    }

    /// Takes back what was exported before a restart, into an engine without locks. Every lease and every lock-delay
    /// begins anew at `now`.
    pub fn import(
        &mut self,
        mut grants: Vec<StoredGrant<D>>,
        delays: impl IntoIterator<Item = (LockName, Duration)>,
        now: Moment,
    ) -> Result<(), Misfit> {
        self.now = self.now.max(now);
        grants.sort_by_key(|grant| grant.token);
        for grant in grants {
            self.import_grant(grant)?;
        }
        for (name, delay) in delays {
            let lock = self.table.find_lock(&name).unwrap_or_else(|| self.table.open(name));
            self.delay_until(lock, self.now + delay);
            if self.table.locks[lock].claims == 0 && self.table.locks[lock].free_from <= self.now {
                self.table.close(lock);
            }
        }
        Ok(())
    }

    fn import_grant(&mut self, grant: StoredGrant<D>) -> Result<(), Misfit> {
        let known = self.table.find_lock(&grant.name);
        let fits = known.is_none_or(|lock| {
            let lock = &self.table.locks[lock];
            self.table.find_place_of(lock, grant.owner).is_none() && self.admits(lock, grant.mode)
        });
        if !fits {
            return Err(Misfit { name: grant.name, token: grant.token });
        }
        let lock = known.unwrap_or_else(|| self.table.open(grant.name.clone()));
        let party = grant.party.map(|party| self.parties.join(party, self.now));
        let claim = Claim {
            name: grant.name,
            mode: grant.mode,
            owner: grant.owner,
            ttl: grant.ttl,
            wait_lease: None,
            lock_delay: grant.lock_delay,
            party: grant.party,
            on_deadlock: grant.on_deadlock,
            details: grant.details,
        };
        let key = self.table.join(lock, claim, party);
        self.table.promote(key, grant.token, self.now);
        self.table.places[key].asked_to_leave = grant.is_revoked;
        self.set_due(key, self.now + grant.ttl);
        self.tokens.raise(grant.token);
        Ok(())
    }

    /// The lock-delays that run, each with what is left of it.
    pub fn export_delays(&self) -> Vec<(LockName, Duration)> {
        let left = |&(end, lock): &(Moment, Key<Lock<D>>)| {
            (self.table.locks[lock].name.clone(), end.since(self.now))
        };
        self.delays.iter().filter(|(end, _)| *end > self.now).map(left).collect()
    }
}

impl<D: Clone> Engine<D> {
    /// The grant of a claim. `None` while the claim waits.
    pub fn export(&self, name: &LockName, owner: OwnerId) -> Option<StoredGrant<D>> {
        let lock = self.table.find_lock(name)?;
        self.stored(&self.table.locks[lock], &self.table.places[self.table.find_place(lock, owner)?])
    }

    /// Every grant.
    pub fn export_all(&self) -> impl Iterator<Item = StoredGrant<D>> {
        self.table.places.iter().filter_map(|place| self.stored(&self.table.locks[place.lock], place))
    }

    fn stored(&self, lock: &Lock<D>, place: &Place<D>) -> Option<StoredGrant<D>> {
        let State::Holding { token, ttl, .. } = place.state else { return None };
        let party = place.party.map(|key| {
            let standing = &self.parties.standings[key];
            Party { id: standing.id, age: Some(standing.age) }
        });
        Some(StoredGrant {
            name: lock.name.clone(),
            owner: place.owner,
            mode: place.mode,
            token,
            ttl,
            lock_delay: place.lock_delay,
            party,
            on_deadlock: place.on_deadlock,
            is_revoked: place.asked_to_leave,
            details: place.details.clone(),
        })
    }
}
