//! What is compared: something that gives locks to clients.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What can go wrong in anybody's lock.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Something to be waited for.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Something that gives locks.
pub trait Contender: Send + Sync {
    /// What it is called in the report.
    fn name(&self) -> &str;

    /// One more client, with a connection of its own where there is such a thing.
    fn client(&self) -> Waiting<'_, Arc<dyn Client>>;

    /// Whether clients that wait are held up by nothing but each other. What blocks a thread while it waits
    /// cannot be asked to wait a thousand times.
    fn can_wait(&self) -> bool {
        true
    }

    /// Whether one client can hold, or wait for, several locks at once. Where a lock is a connection's, the next
    /// one takes another connection.
    fn holds_many(&self) -> bool {
        true
    }

    /// As many connections as it may be asked to have where it needs one for each lock. Only what is to be shown
    /// with more takes the time to open them.
    fn most_connections(&self) -> usize {
        128
    }

    /// Clears away what its clients left in the engine, so that it is not in the way of whoever is next.
    fn clear_away(&self) -> Waiting<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Somebody who takes locks.
pub trait Client: Send + Sync {
    /// Takes the lock `name`, waiting for it as long as it takes.
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>>;
}

/// A lock that is held.
pub trait Held: Send {
    /// Gives it back, and waits until that is done.
    fn unlock(self: Box<Self>) -> Waiting<'static, ()>;
}
