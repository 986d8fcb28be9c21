//! Acquires that were sent, and that nobody waits for any more: a withdrawal must not overtake them.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_core::OwnerId;

/// As many are remembered. Those who were to withdraw the others have given up, and what they wanted has ended by itself.
const MOST: usize = 1 << 12;

/// What is needed to wait for such an acquire, or to end it: `W`, by the claim's owner.
#[derive(Debug)]
pub struct LeftBehind<W> {
    ways: Mutex<HashMap<OwnerId, Way<W>>>,
}

#[derive(Debug)]
struct Way<W> {
    /// When it was left first.
    since: Instant,
    way: W,
}

impl<W> Default for LeftBehind<W> {
    fn default() -> Self {
        Self { ways: Mutex::default() }
    }
}

impl<W> LeftBehind<W> {
    /// The ask of `owner` went this way, and its answer will not be read.
    pub fn leave(&self, owner: OwnerId, way: W) {
        self.put(owner, Way { since: Instant::now(), way });
    }

    /// Which way it went, if its answer was not read. It stays known until it is [settled](Kept::settle).
    pub fn kept(&self, owner: OwnerId) -> Option<Kept<'_, W>> {
        let Way { since, way } = self.ways().remove(&owner)?;
        Some(Kept { left_behind: self, owner, since, way: Some(way) })
    }

    /// What is needed to end those that were left for longer than `age`: nobody withdrew them. They stay known meanwhile, or a
    /// withdrawal that comes after all would overtake them.
    pub fn overdue<T>(&self, age: Duration, needed: impl Fn(&W) -> T) -> Vec<(Overdue, T)> {
        let ways = self.ways();
        let overdue = ways.iter().filter(|(_, way)| way.since.elapsed() >= age);
        overdue.map(|(owner, way)| (Overdue { owner: *owner, since: way.since }, needed(&way.way))).collect()
    }

    /// It was ended: nothing of it arrives any more.
    pub fn settle(&self, overdue: &Overdue) {
        let mut ways = self.ways();
        // The same owner may have left another one since.
        let is_it = ways.get(&overdue.owner).is_some_and(|way| way.since == overdue.since);
        let settled = if is_it { ways.remove(&overdue.owner) } else { None };
        drop(ways);
        drop(settled);
    }

    fn put(&self, owner: OwnerId, way: Way<W>) {
        let mut ways = self.ways();
        if ways.len() >= MOST {
            ways.clear();
        }
        ways.insert(owner, way);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ways().len()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.ways().clear();
    }

    fn ways(&self) -> MutexGuard<'_, HashMap<OwnerId, Way<W>>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them that was not withdrawn for long.
#[derive(Debug)]
pub struct Overdue {
    owner: OwnerId,
    since: Instant,
}

/// One of them, in the hands of whoever makes sure of it. If that is given up, it is as before.
#[derive(Debug)]
pub struct Kept<'a, W> {
    left_behind: &'a LeftBehind<W>,
    owner: OwnerId,
    since: Instant,
    way: Option<W>,
}

const KEPT: &str = "it is there until it is settled, which consumes this";

impl<W> Kept<'_, W> {
    /// When it was left.
    pub fn since(&self) -> Instant {
        self.since
    }

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
            self.left_behind.put(self.owner, Way { since: self.since, way });
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

    #[test]
    fn what_is_overdue_stays_known_until_it_was_ended() {
        let (left_behind, owner) = (LeftBehind::default(), OwnerId::random());
        left_behind.leave(owner, 7);
        assert!(left_behind.overdue(Duration::from_secs(60), |way| *way).is_empty(), "it was left just now");
        let overdue = left_behind.overdue(Duration::ZERO, |way| *way);
        let [(first, 7)] = &overdue[..] else { panic!("{overdue:?}") };
        drop(left_behind.kept(owner).expect("it is known"));
        left_behind.settle(first);
        assert!(left_behind.kept(owner).is_none(), "it was ended");
        std::thread::sleep(Duration::from_millis(2));
        left_behind.leave(owner, 8);
        left_behind.settle(first);
        assert_eq!(left_behind.kept(owner).expect("it is another one").settle(), 8);
    }
}
