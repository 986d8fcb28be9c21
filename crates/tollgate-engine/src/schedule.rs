//! Alarms: which record is to be looked at next, and when.

use tollgate_types::Moment;

use crate::arena::Key;

/// Children per node: four entries of sixteen bytes are one cache line.
const ARITY: usize = 4;

/// At most one alarm per record, the earliest first: a heap that also knows where each record's alarm is,
/// so that a record that leaves takes its alarm along and nothing stale piles up.
///
/// An alarm may ring early, never late. That makes renewals free: a lease that is extended keeps its old
/// alarm, and only when that rings is the next one set.
pub(crate) struct Schedule<T> {
    heap: Vec<Alarm<T>>,
    /// By record: where in the heap its alarm is, if the alarm found there is its own.
    places: Vec<u32>,
}

struct Alarm<T> {
    at: Moment,
    key: Key<T>,
}

impl<T> Clone for Alarm<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Alarm<T> {}

impl<T> Schedule<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), places: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the next alarm rings.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.heap.first().map(|alarm| alarm.at)
    }

    /// When the alarm of this record rings.
    pub(crate) fn of(&self, key: Key<T>) -> Option<Moment> {
        self.find(key).map(|place| self.heap[place].at)
    }

    /// Makes sure that an alarm rings for `key` at `at` or before. At the end of time nothing rings.
    pub(crate) fn ring_by(&mut self, key: Key<T>, at: Moment) {
        match self.find(key) {
            Some(place) if self.heap[place].at <= at => {}
            Some(place) => self.sift_up(place, Alarm { at, key }),
            None if at == Moment::MAX => {}
            None => {
                let alarm = Alarm { at, key };
                if self.places.len() <= key.position() {
                    self.places.resize(key.position() + 1, 0);
                }
                self.heap.push(alarm);
                self.sift_up(self.heap.len() - 1, alarm);
            }
        }
    }

    /// Forgets the alarm of a record that leaves.
    pub(crate) fn cancel(&mut self, key: Key<T>) {
        let Some(place) = self.find(key) else { return };
        let Some(last) = self.heap.pop() else { return };
        if place == self.heap.len() {
            return;
        }
        if place > 0 && last.at < self.heap[(place - 1) / ARITY].at {
            self.sift_up(place, last);
        } else {
            self.sift_down(place, last);
        }
    }

    /// Takes out an alarm that rings at `now` or before.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<Key<T>> {
        let first = self.heap.first().filter(|alarm| alarm.at <= now)?.key;
        self.cancel(first);
        Some(first)
    }

    fn find(&self, key: Key<T>) -> Option<usize> {
        let place = *self.places.get(key.position())? as usize;
        self.heap.get(place).is_some_and(|alarm| alarm.key == key).then_some(place)
    }

    fn put(&mut self, place: usize, alarm: Alarm<T>) {
        self.heap[place] = alarm;
        self.places[alarm.key.position()] = place as u32;
    }

    /// Puts `alarm` at `place` or, past later ones, closer to the front.
    fn sift_up(&mut self, mut place: usize, alarm: Alarm<T>) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].at <= alarm.at {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, alarm);
    }

    /// Puts `alarm` at `place` or, past earlier ones, further back.
    fn sift_down(&mut self, mut place: usize, alarm: Alarm<T>) {
        loop {
            let first = place * ARITY + 1;
            let children = first..self.heap.len().min(first + ARITY);
            let Some(child) = children.min_by_key(|&child| self.heap[child].at) else { break };
            if alarm.at <= self.heap[child].at {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, alarm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;

    #[test]
    fn alarms_ring_in_order_whatever_was_set_moved_and_cancelled() {
        let mut arena = Arena::new();
        let keys: Vec<_> = (0..500).map(|n| arena.insert(n)).collect();
        let mut schedule = Schedule::new();
        let mut expected = vec![None; keys.len()];
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let n = random(500) as usize;
            if random(3) == 0 {
                schedule.cancel(keys[n]);
                expected[n] = None;
            } else {
                let at = Moment::from_nanos(random(1000));
                schedule.ring_by(keys[n], at);
                expected[n] = Some(expected[n].map_or(at, |old: Moment| old.min(at)));
            }
            assert_eq!(schedule.of(keys[n]), expected[n]);
            assert_eq!(schedule.next(), expected.iter().flatten().min().copied());
        }
        let mut last = Moment::ZERO;
        while let Some(next) = schedule.next() {
            assert!(next >= last);
            last = next;
            let rung = schedule.pop_due(next).unwrap();
            assert_eq!(expected[arena[rung]].take(), Some(next));
        }
        assert!(expected.iter().all(Option::is_none));
    }

    #[test]
    fn nothing_rings_at_the_end_of_time() {
        let mut arena = Arena::new();
        let mut schedule = Schedule::new();
        schedule.ring_by(arena.insert(()), Moment::MAX);
        assert_eq!(schedule.next(), None);
    }
}
