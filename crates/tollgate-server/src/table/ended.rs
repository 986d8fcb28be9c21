//! Owner ids that are over: an acquire of one is refused, a release of one is answered again.

use std::collections::{HashMap, VecDeque};
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

/// The ends of the last minute.
#[derive(Default)]
pub(super) struct Ended {
    ends: HashMap<Key, (End, Moment)>,
    order: VecDeque<(Moment, Key)>,
}

impl Ended {
    pub(super) fn note(&mut self, key: Key, end: End, now: Moment) {
        self.forget(now);
        self.ends.insert(key.clone(), (end, now));
        self.order.push_back((now, key));
    }

    pub(super) fn of(&mut self, key: &Key, now: Moment) -> Option<End> {
        self.forget(now);
        self.ends.get(key).map(|(end, _)| *end)
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
