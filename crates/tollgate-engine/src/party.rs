//! Parties: how old each one is that has a claim, and which of its claims wait.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tollgate_types::{Age, Moment, Party, PartyId};

use crate::arena::{Arena, Key};
use crate::table::Place;

/// Every party with a live claim.
///
/// While any of its claims lives, a party has one age: the oldest one that a claim of it stated, or the
/// engine's time at its first claim if none did.
pub(crate) struct Parties<D> {
    pub(crate) standings: Arena<Standing<D>>,
    by_id: HashMap<PartyId, Key<Standing<D>>, FixedState>,
}

/// What is known about one party.
pub(crate) struct Standing<D> {
    pub(crate) id: PartyId,
    pub(crate) age: Age,
    claims: u32,
    /// Those of its claims that wait: usually one at most.
    pub(crate) waiting: Vec<Key<Place<D>>>,
}

impl<D> Standing<D> {
    /// Who is older: smaller.
    pub(crate) fn seniority(&self) -> (Age, PartyId) {
        (self.age, self.id)
    }

    /// Whether it has no other claim than one.
    pub(crate) fn has_one_claim(&self) -> bool {
        self.claims == 1
    }
}

impl<D> Parties<D> {
    pub(crate) fn new() -> Self {
        Self { standings: Arena::new(), by_id: HashMap::with_hasher(FixedState::with_seed(0)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.standings.len()
    }

    /// The age that `party` has if it makes a claim now.
    pub(crate) fn age_at(&self, party: Party, now: Moment) -> Age {
        let known = self.by_id.get(&party.id).map(|&key| self.standings[key].age);
        known.into_iter().chain(party.age).min().unwrap_or(Age(now.as_nanos() / 1000))
    }

    /// Lowers the age of a party with live claims to the one that its next claim states.
    pub(crate) fn learn_age(&mut self, party: Party) {
        if let (Some(&key), Some(stated)) = (self.by_id.get(&party.id), party.age) {
            let standing = &mut self.standings[key];
            standing.age = standing.age.min(stated);
        }
    }

    /// A claim of `party` was made.
    pub(crate) fn join(&mut self, party: Party, now: Moment) -> Key<Standing<D>> {
        let age = self.age_at(party, now);
        if let Some(&key) = self.by_id.get(&party.id) {
            let standing = &mut self.standings[key];
            standing.claims += 1;
            standing.age = age;
            return key;
        }
        let key = self.standings.insert(Standing { id: party.id, age, claims: 1, waiting: Vec::new() });
        self.by_id.insert(party.id, key);
        key
    }

    pub(crate) fn age(&self, key: Key<Standing<D>>) -> Age {
        self.standings[key].age
    }

    /// A claim of this party waits.
    pub(crate) fn waits(&mut self, key: Key<Standing<D>>, claim: Key<Place<D>>) {
        self.standings[key].waiting.push(claim);
    }

    /// A claim of this party waits no longer. Whether others of it still do.
    pub(crate) fn waits_no_longer(&mut self, key: Key<Standing<D>>, claim: Key<Place<D>>) -> bool {
        let waiting = &mut self.standings[key].waiting;
        let found = waiting.iter().position(|&other| other == claim);
        found.is_some_and(|at| {
            waiting.remove(at);
            !waiting.is_empty()
        })
    }

    /// A claim of this party ended.
    pub(crate) fn leave(&mut self, key: Key<Standing<D>>) {
        let standing = &mut self.standings[key];
        standing.claims -= 1;
        if standing.claims == 0 {
            self.by_id.remove(&standing.id);
            self.standings.remove(key);
        }
    }
}
