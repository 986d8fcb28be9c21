//! What the owners of grants are told unasked.

use tollgate_core::{Age, Moment, OwnerId};
use tollgate_embedded::durable::Commit;

use super::answer::Answer;
use super::request::Source;
use super::state::Table;

/// Something that happened to a grant, for the connection of its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// An operator took the grant away, or asked the holder to leave.
    Revoked(OwnerId),
    /// The grant is over: released, withdrawn or expired. There is nothing more to tell.
    Over(OwnerId),
}

impl Table {
    /// What happened to grants since the last call. It is not held back until it is durable: a
    /// holder that leaves for a break that a crash undoes has only left early.
    pub fn take_told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// Whether [`take_batch`](Self::take_batch) has changes for the disk.
    pub fn has_batch(&self) -> bool {
        self.engine.has_batch()
    }

    /// Whether an answer waits for the disk.
    pub fn is_awaited(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Answers with the mark of a resource, when it is durable.
    pub fn tell_mark(&mut self, source: Source, resource: &str) {
        let (mark, after) = self.engine.mark(resource);
        self.answer(source, Answer::Mark { mark }, after);
    }

    /// The age of a party whose first claim comes at `now`, and the commit after which no later
    /// party gets a smaller one.
    pub fn age(&mut self, now: Moment) -> (Age, Option<Commit>) {
        self.engine.age(now)
    }
}
