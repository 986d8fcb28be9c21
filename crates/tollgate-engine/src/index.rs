//! Finds records by a hash of something they contain.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::arena::Key;

/// A hash table of keys. What the keys lead to is compared by the caller.
///
/// Each entry keeps its hash, so that growing the table reads the table alone: following a million keys to
/// a million names would stop the engine for a tenth of a second.
pub(crate) struct Index<T> {
    entries: HashTable<Entry<T>>,
}

struct Entry<T> {
    hash: u32,
    key: Key<T>,
}

/// A hash that is the same in every run. The order of the entries depends on it, and nothing depends on
/// the order of the entries.
pub(crate) fn hash_of(value: impl Hash) -> u32 {
    let hash = FixedState::with_seed(0).hash_one(value);
    (hash >> 32) as u32 ^ hash as u32
}

/// The table takes an entry's group from the low bits of a hash and its tag from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl<T> Index<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: HashTable::new() }
    }

    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(Key<T>) -> bool) -> Option<Key<T>> {
        let entry = self.entries.find(spread(hash), |entry| entry.hash == hash && is_it(entry.key));
        entry.map(|entry| entry.key)
    }

    pub(crate) fn insert(&mut self, hash: u32, key: Key<T>) {
        self.entries.insert_unique(spread(hash), Entry { hash, key }, |entry| spread(entry.hash));
    }

    pub(crate) fn remove(&mut self, hash: u32, key: Key<T>) {
        if let Ok(entry) = self.entries.find_entry(spread(hash), |entry| entry.key == key) {
            entry.remove();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
