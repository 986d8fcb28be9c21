//! The copies of an acquire that were sent, and which of them may still be executed.
//!
//! Each copy does nothing once there is a key of its own number that says so. A later copy writes those of all before it in the
//! step in which it acts itself: once it is answered, nothing of the acquire can come late. All these keys hang on the lease that
//! the claim's own would, and a request that comes after the lease is refused for want of it.

/// How many may be on their way at once. etcd takes 128 operations in a transaction, and each copy has one for each before it.
const MOST: u32 = 16;

/// The copies of one acquire in one lease, by number from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Copies {
    /// Whether one is on its way whose answer is awaited.
    awaited: bool,
    /// How many were given up without knowing what became of them.
    doubtful: u32,
    /// How many of these are kept from doing anything more.
    silenced: u32,
}

/// How a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// etcd executed it.
    Answered,
    /// etcd surely did not, and never will.
    Refused,
    /// Nobody knows.
    InDoubt,
}

impl Copies {
    /// One more is sent; answers its number.
    pub(crate) fn send(&mut self) -> u32 {
        self.awaited = true;
        self.doubtful + 1
    }

    /// The one that was sent last is no longer awaited.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.awaited = false;
        match ended {
            Ended::Answered => self.silenced = self.doubtful,
            Ended::Refused => {}
            Ended::InDoubt => self.doubtful += 1,
        }
    }

    /// Whether one may still make the claim's key.
    pub(crate) fn may_come(self) -> bool {
        self.awaited || self.doubtful > self.silenced
    }

    /// The highest number of those that may.
    pub(crate) fn last(self) -> u32 {
        self.doubtful + u32::from(self.awaited)
    }

    /// Whether there may be one more.
    pub(crate) fn may_send(self) -> bool {
        self.doubtful < MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_silences_all_copies_before_it_and_a_refusal_none() {
        let mut copies = Copies::default();
        assert!(!copies.may_come(), "nothing was sent");
        assert_eq!(copies.send(), 1);
        assert!(copies.may_come());
        assert_eq!(copies.last(), 1);
        copies.end(Ended::InDoubt);
        assert!(copies.may_come());
        assert_eq!(copies.send(), 2);
        copies.end(Ended::Refused);
        assert!(copies.may_come(), "the first one may");
        assert_eq!(copies.last(), 1);
        assert_eq!(copies.send(), 2, "one that was refused leaves its number");
        copies.end(Ended::Answered);
        assert!(!copies.may_come());
        assert_eq!(copies.send(), 2, "and so does one that was answered");
        copies.end(Ended::Refused);
        assert!(!copies.may_come());
    }

    #[test]
    fn there_is_an_end_to_copies() {
        let mut copies = Copies::default();
        let mut sent = 0;
        while copies.may_send() {
            sent = copies.send();
            copies.end(Ended::InDoubt);
        }
        assert_eq!(sent, MOST);
    }
}
