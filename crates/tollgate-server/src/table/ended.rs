//! Owner ids that are over: an acquire of one is refused, a release of one is answered again.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::Moment;

use super::request::Key;

/// For how long they are remembered: a request may be as late as that.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Released,
    Withdrawn,
    Lost,
}

/// The ends of the last minute, of millions of claims: names are not kept.
#[derive(Default)]
pub(super) struct Ended {
    ends: HashMap<u128, (End, Moment)>,
    order: VecDeque<(Moment, u128)>,
    names: RandomState,
}

impl Ended {
    pub(super) fn note(&mut self, key: &Key, end: End, now: Moment) {
        self.forget(now);
        let id = self.id(key);
        self.ends.insert(id, (end, now));
        self.order.push_back((now, id));
    }

    pub(super) fn of(&mut self, key: &Key, now: Moment) -> Option<End> {
        self.forget(now);
        self.ends.get(&self.id(key)).map(|(end, _)| *end)
    }

    /// The owner id, which is the same for all locks of a set, with the hash of the name.
    fn id(&self, key: &Key) -> u128 {
        key.owner.to_bits() ^ u128::from(self.names.hash_one(&key.name))
    }

    fn forget(&mut self, now: Moment) {
        while let Some((at, _)) = self.order.front()
            && now.since(*at) >= REMEMBERED
            && let Some((at, key)) = self.order.pop_front()
        {
            // It may have ended again since.
            if self.ends.get(&key).is_some_and(|(_, last)| *last == at) {
                self.ends.remove(&key);
            }
        }
    }
}
