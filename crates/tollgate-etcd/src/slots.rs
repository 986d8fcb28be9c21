//! The numbers by which a session tells its claims on one name apart.
//!
//! etcd keeps every key that ever was in its index until its history is compacted, and whoever reads a queue walks over all of
//! them. So keys are used again: a lock that was taken a million times has as many as its claims that were there at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use tollgate_core::LockName;

/// The numbers of all claims of a session.
#[derive(Debug, Default)]
pub(crate) struct Slots(HashMap<LockName, Numbers>);

/// The numbers of the claims on one name. Those below `next` that are not free are in use, or never used again.
#[derive(Debug, Default)]
struct Numbers {
    next: u32,
    free: BinaryHeap<Reverse<u32>>,
}

impl Slots {
    /// The smallest number that may be used for a claim on `name`.
    pub(crate) fn take(&mut self, name: &LockName) -> u32 {
        if let Some(numbers) = self.0.get_mut(name) {
            return numbers.take();
        }
        self.0.entry(name.clone()).or_default().take()
    }

    /// A number may be used again: etcd has no key with it, and nothing that was sent can make or delete one.
    pub(crate) fn give_back(&mut self, name: &LockName, slot: u32) {
        let Some(numbers) = self.0.get_mut(name) else { return };
        numbers.free.push(Reverse(slot));
        if numbers.free.len() == numbers.next as usize {
            self.0.remove(name);
        }
    }
}

impl Numbers {
    fn take(&mut self) -> u32 {
        if let Some(Reverse(slot)) = self.free.pop() {
            return slot;
        }
        self.next += 1;
        self.next - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_claims_and_the_smallest_is_used_again() {
        let (mut slots, name) = (Slots::default(), LockName::new("a").unwrap());
        assert_eq!([(); 4].map(|()| slots.take(&name)), [0, 1, 2, 3]);
        assert_eq!(slots.take(&LockName::new("b").unwrap()), 0, "names have numbers of their own");
        slots.give_back(&name, 2);
        slots.give_back(&name, 1);
        assert_eq!([(); 3].map(|()| slots.take(&name)), [1, 2, 4]);
    }

    #[test]
    fn a_number_that_never_comes_back_is_never_given_again() {
        let (mut slots, name) = (Slots::default(), LockName::new("a").unwrap());
        assert_eq!(slots.take(&name), 0);
        for _ in 0..3 {
            assert_eq!(slots.take(&name), 1);
            slots.give_back(&name, 1);
        }
        slots.give_back(&name, 0);
        assert!(slots.0.is_empty(), "what is not needed is forgotten");
    }
}
