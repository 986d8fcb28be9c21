//! Parties: how old each one is that has a claim.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tollgate_types::{Age, Moment, Party, PartyId};

use crate::arena::{Arena, Key};

/// Every party with a live claim.
///
/// While any of its claims lives, a party has one age: the oldest one that a claim of it stated, or the
/// engine's time at its first claim if none did.
pub(crate) struct Parties {
    standings: Arena<Standing>,
    by_id: HashMap<PartyId, Key<Standing>, FixedState>,
}

/// What is known about one party.
pub(crate) struct Standing {
    id: PartyId,
    age: Age,
    claims: u32,
}

impl Parties {
    pub(crate) fn new() -> Self {
        Self { standings: Arena::new(), by_id: HashMap::with_hasher(FixedState::with_seed(0)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.standings.len()
    }

    /// A claim of `party` was made.
    pub(crate) fn join(&mut self, party: Party, now: Moment) -> Key<Standing> {
        if let Some(&key) = self.by_id.get(&party.id) {
            let standing = &mut self.standings[key];
            standing.claims += 1;
            standing.age = party.age.map_or(standing.age, |stated| stated.min(standing.age));
            return key;
        }
        let age = party.age.unwrap_or(Age(now.as_nanos() / 1000));
        let key = self.standings.insert(Standing { id: party.id, age, claims: 1 });
        self.by_id.insert(party.id, key);
        key
    }

    pub(crate) fn age(&self, key: Key<Standing>) -> Age {
        self.standings[key].age
    }

    /// A claim of this party ended.
    pub(crate) fn leave(&mut self, key: Key<Standing>) {
        let standing = &mut self.standings[key];
        standing.claims -= 1;
        if standing.claims == 0 {
            self.by_id.remove(&standing.id);
            self.standings.remove(key);
        }
    }
}
