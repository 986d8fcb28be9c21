//! A dense home for many small records that point at each other.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// Records per chunk. Chunks never move and never double, so a million records cost a million records.
const CHUNK: usize = 1024;

/// Records of one kind, each reached by the key it got when it moved in.
pub(crate) struct Arena<T> {
    chunks: Vec<Vec<Cell<T>>>,
    free: Option<Key<T>>,
    len: usize,
}

enum Cell<T> {
    Full(T),
    Free { next: Option<Key<T>> },
}

/// Where a record lives: four bytes, also as an `Option`. Good until the record is removed; keeping it
/// longer is a bug, and reading through it then panics or finds another record.
pub(crate) struct Key<T> {
    /// The position plus one.
    number: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> Key<T> {
        self.len += 1;
        let Some(key) = self.free else { return self.append(value) };
        let cell = &mut self.chunks[key.chunk()][key.offset()];
        if let Cell::Free { next } = cell {
            self.free = *next;
        }
        *cell = Cell::Full(value);
        key
    }

    fn append(&mut self, value: T) -> Key<T> {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // A small engine stays small: its only chunk grows as it is filled.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("a chunk was pushed if there was none");
        chunk.push(Cell::Full(value));
        Key::new(before + chunk.len())
    }

    pub(crate) fn remove(&mut self, key: Key<T>) -> T {
        let cell = &mut self.chunks[key.chunk()][key.offset()];
        match std::mem::replace(cell, Cell::Free { next: self.free }) {
            Cell::Full(value) => {
                self.free = Some(key);
                self.len -= 1;
                value
            }
            Cell::Free { .. } => panic!("{key:?} was removed twice"),
        }
    }

    /// Whether a record lives there: the one the key was for, or another that came after it.
    pub(crate) fn contains(&self, key: Key<T>) -> bool {
        let cell = self.chunks.get(key.chunk()).and_then(|chunk| chunk.get(key.offset()));
        matches!(cell, Some(Cell::Full(_)))
    }

    /// The records at up to `most` positions from `from` on, and the position after them; `None` at
    /// the end.
    pub(crate) fn page(&self, from: usize, most: usize) -> (impl Iterator<Item = &T>, Option<usize>) {
        let positions = self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len());
        let end = from.saturating_add(most).min(positions);
        let cells = (from.min(end)..end).map(|at| &self.chunks[at / CHUNK][at % CHUNK]);
        let records = cells.filter_map(|cell| match cell {
            Cell::Full(value) => Some(value),
            Cell::Free { .. } => None,
        });
        (records, (end < positions).then_some(end))
    }

    /// Every record, in the order of their positions, which means nothing to anybody outside.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().filter_map(|cell| match cell {
            Cell::Full(value) => Some(value),
            Cell::Free { .. } => None,
        })
    }
}

impl<T> Index<Key<T>> for Arena<T> {
    type Output = T;
    fn index(&self, key: Key<T>) -> &T {
        match &self.chunks[key.chunk()][key.offset()] {
            Cell::Full(value) => value,
            Cell::Free { .. } => panic!("{key:?} was removed"),
        }
    }
}

impl<T> IndexMut<Key<T>> for Arena<T> {
    fn index_mut(&mut self, key: Key<T>) -> &mut T {
        match &mut self.chunks[key.chunk()][key.offset()] {
            Cell::Full(value) => value,
            Cell::Free { .. } => panic!("{key:?} was removed"),
        }
    }
}

impl<T> Key<T> {
    fn new(number: usize) -> Self {
        let number = u32::try_from(number).ok().and_then(NonZeroU32::new);
        let number = number.expect("2^32 records would fill hundreds of gigabytes first");
        Self { number, of: PhantomData }
    }

    /// The record's position: small numbers, fit to index a vector.
    pub(crate) fn position(self) -> usize {
        self.number.get() as usize - 1
    }

    fn chunk(self) -> usize {
        self.position() / CHUNK
    }

    fn offset(self) -> usize {
        self.position() % CHUNK
    }
}

// By hand, because deriving would ask for `T: Clone` and so on, although a key holds no `T`.
impl<T> Copy for Key<T> {}
impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Eq for Key<T> {}
impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<T> Ord for Key<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.number.cmp(&other.number)
    }
}
impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Hash for Key<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}", self.position())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_place_is_used_again_before_a_new_one() {
        let mut arena = Arena::new();
        let keys: Vec<_> = (0..3 * CHUNK).map(|n| arena.insert(n)).collect();
        assert!(keys.iter().enumerate().all(|(n, &key)| arena[key] == n));
        assert_eq!(arena.remove(keys[7]), 7);
        assert_eq!(arena.remove(keys[CHUNK + 1]), CHUNK + 1);
        assert_eq!(arena.len(), 3 * CHUNK - 2);
        assert_eq!(arena.iter().count(), arena.len());
        assert_eq!((arena.insert(0), arena.insert(0)), (keys[CHUNK + 1], keys[7]));
        assert_eq!(arena.insert(0).position(), 3 * CHUNK);
    }

    #[test]
    fn a_key_takes_four_bytes_even_when_it_may_be_missing() {
        assert_eq!(size_of::<Option<Key<String>>>(), 4);
    }
}
