//! Acquires that were sent, and that nobody waits for any more: a withdrawal must not overtake them.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
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

    /// Which way it went, if its answer was not read. It stays known until it is [settled](Kept::settle).
    pub fn kept(&self, owner: OwnerId) -> Option<Kept<'_, W>> {
        let way = self.ways().remove(&owner)?;
        Some(Kept { left_behind: self, owner, way: Some(way) })
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.ways().clear();
    }

    fn ways(&self) -> MutexGuard<'_, HashMap<OwnerId, W>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, in the hands of whoever makes sure of it. If that is given up, it is as before.
#[derive(Debug)]
pub struct Kept<'a, W> {
    left_behind: &'a LeftBehind<W>,
    owner: OwnerId,
    way: Option<W>,
}

const KEPT: &str = "it is there until it is settled, which consumes this";

impl<W> Kept<'_, W> {
    /// The ask has arrived, or never will.
    pub fn settle(mut self) -> W {
        self.way.take().expect(KEPT)
    }
}

impl<W> Deref for Kept<'_, W> {
    type Target = W;

    fn deref(&self) -> &W {
        self.way.as_ref().expect(KEPT)
    }
}

impl<W> DerefMut for Kept<'_, W> {
    fn deref_mut(&mut self) -> &mut W {
        self.way.as_mut().expect(KEPT)
    }
}

impl<W> Drop for Kept<'_, W> {
    fn drop(&mut self) {
        if let Some(way) = self.way.take() {
            self.left_behind.leave(self.owner, way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_made_sure_of_stays_known() {
        let (left_behind, owner) = (LeftBehind::default(), OwnerId::random());
        left_behind.leave(owner, 7);
        drop(left_behind.kept(owner).expect("it is known"));
        let kept = left_behind.kept(owner).expect("it was given up, so it is still known");
        assert_eq!(kept.settle(), 7);
        assert!(left_behind.kept(owner).is_none(), "it is settled");
    }
}
