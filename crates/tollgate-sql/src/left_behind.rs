//! Acquires that were sent, and that nobody waits for any more: a withdrawal must not overtake them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::OwnerId;

/// As many are remembered. Those who were to withdraw the others have given up, and what they wanted has ended by itself.
const MOST: usize = 1 << 12;

/// What is needed to wait for such an acquire, or to end it: `W`, by the claim's owner.
#[derive(Debug)]
pub struct LeftBehind<W> {
    ways: Mutex<HashMap<OwnerId, W>>,
}

impl<W> Default for LeftBehind<W> {
    fn default() -> Self {
        Self { ways: Mutex::default() }
    }
}

impl<W> LeftBehind<W> {
    /// The ask of `owner` went this way, and its answer will not be read.
    pub fn leave(&self, owner: OwnerId, way: W) {
        let mut ways = self.ways();
        if ways.len() >= MOST {
            ways.clear();
        }
        ways.insert(owner, way);
    }

    /// Which way it went, if its answer was not read. Whoever cannot make sure of it puts it back.
    pub fn take(&self, owner: OwnerId) -> Option<W> {
        self.ways().remove(&owner)
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.ways().clear();
    }

    fn ways(&self) -> MutexGuard<'_, HashMap<OwnerId, W>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
