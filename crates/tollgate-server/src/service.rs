//! What every front end speaks to: request values in, response values out, no socket.

use std::pin::Pin;

use futures_core::Stream;
use tollgate_proto::{
    Acquire, AcquireAll, Admit, Admitted, Break, Broken, Deadlocks, Event, EventId, EventsQuery, Extend,
    Grant, Grants, HealthStatus, Info, Keep, Kept, Lock, LockQuery, Locks, LocksQuery, Problem, Release,
    Released, Top, Withdraw,
};

/// A response on its way. It stays on the server's thread.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + 'a>>;

/// What happens to locks from some moment on. It never ends by itself.
pub type EventStream = Pin<Box<dyn Stream<Item = Event>>>;

/// A lock, or that it is still as the client knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// The lock, with the tag of this state.
    Changed(Lock, String),
    /// The state still has this tag.
    Unchanged(String),
}

/// What a server serves: its own durable table, or another engine.
///
/// Every call passes one of these methods, so that access rules have one place to stand in. A
/// future that is dropped is a client that is gone: a claim without an owner that the client knows
/// is withdrawn then, every other claim keeps its place for a while.
pub trait Service {
    /// Takes a lock.
    fn acquire(&self, call: Acquire) -> Answering<'_, Grant>;
    /// Takes several locks, all or nothing.
    fn acquire_all(&self, call: AcquireAll) -> Answering<'_, Grants>;
    /// Renews grants and keeps the places of claims that wait.
    fn keep(&self, call: Keep) -> Answering<'_, Kept>;
    /// Renews one grant.
    fn extend(&self, call: Extend) -> Answering<'_, Grant>;
    /// Gives locks back.
    fn release(&self, call: Release) -> Answering<'_, Released>;
    /// Removes claims in whatever state they are.
    fn withdraw(&self, call: Withdraw) -> Answering<'_, Released>;
    /// Compares a token with the mark of a resource, and raises the mark.
    fn admit(&self, call: Admit) -> Answering<'_, Admitted>;
    /// Takes a lock from its holder.
    fn break_lock(&self, call: Break) -> Answering<'_, Broken>;
    /// Looks at one lock; with a tag that is still true it may wait for a change.
    fn lock(&self, query: LockQuery, known: Option<String>) -> Answering<'_, Looked>;
    /// Looks at a page of locks.
    fn locks(&self, query: LocksQuery) -> Answering<'_, Locks>;
    /// Follows what happens, from the event after `last` on if that is given and still known.
    fn events(&self, query: EventsQuery, last: Option<EventId>) -> Answering<'_, EventStream>;
    /// The locks that stand out.
    fn top(&self) -> Answering<'_, Top>;
    /// The wait-for graph.
    fn deadlocks(&self) -> Answering<'_, Deadlocks>;
    /// What the server is and promises.
    fn info(&self) -> Answering<'_, Info>;
    /// Whether the server serves.
    fn health(&self) -> HealthStatus;
}
