//! What a client remembers of the names it used lately: in a table that forgets, never a list that grows.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_types::Moment;

/// How many names are remembered at most.
const NAMES: usize = 1024;

/// Names that something was noted of, and when. Two names may drive each other out: then what was noted is noted again.
#[derive(Debug)]
pub struct Recent {
    hasher: RandomState,
    notes: Box<[AtomicU64]>,
    /// How long a note is good for.
    lasts: Duration,
}

impl Recent {
    /// Notes that are good for as long as `lasts`.
    pub fn new(lasts: Duration) -> Self {
        Self { hasher: RandomState::new(), notes: (0..NAMES).map(|_| AtomicU64::new(0)).collect(), lasts }
    }

    /// Whether `name` was noted lately.
    pub fn has(&self, name: &str, now: Moment) -> bool {
        let (place, tag) = self.place(name);
        let note = place.load(Ordering::Relaxed);
        let ago = ticks(now).wrapping_sub(note as u32);
        note >> 32 == tag && u128::from(ago) * u128::from(TICK_NANOS) < self.lasts.as_nanos()
    }

    /// Notes `name`.
    pub fn note(&self, name: &str, now: Moment) {
        let (place, tag) = self.place(name);
        place.store(tag << 32 | u64::from(ticks(now)), Ordering::Relaxed);
    }

    /// What was noted of `name` is no longer so.
    pub fn forget(&self, name: &str) {
        let (place, tag) = self.place(name);
        if place.load(Ordering::Relaxed) >> 32 == tag {
            place.store(0, Ordering::Relaxed);
        }
    }

    fn place(&self, name: &str) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(name);
        // Never zero, so that an empty place is nobody's.
        (&self.notes[hash as usize % NAMES], (hash >> 32) | 1)
    }
}

/// About a quarter of a second.
const TICK_NANOS: u64 = 1 << 28;

fn ticks(moment: Moment) -> u32 {
    (moment.as_nanos() / TICK_NANOS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_good_for_its_time_and_its_name() {
        let recent = Recent::new(Duration::from_secs(2));
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        assert!(!recent.has("a", at(0)));
        recent.note("a", at(10));
        assert!(recent.has("a", at(11)) && !recent.has("b", at(11)));
        assert!(!recent.has("a", at(13)));
        recent.note("a", at(20));
        recent.forget("b");
        assert!(recent.has("a", at(21)));
        recent.forget("a");
        assert!(!recent.has("a", at(21)));
    }
}
