//! What has passed through a proxy.

use std::sync::atomic::{AtomicU64, Ordering};

/// What has come to the proxy since its start or the last reset, passed on or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that clients opened.
    pub connections: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Replies of the engine.
    pub replies: u64,
    /// What the engine said unasked.
    pub pushes: u64,
    /// Bytes from clients.
    pub bytes_out: u64,
    /// Bytes from the engine.
    pub bytes_back: u64,
}

/// The same, being counted.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) pushes: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    pub(super) bytes_back: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> Counts {
        self.each(|counter| counter.load(Ordering::Relaxed))
    }

    /// Starts again from nothing and tells what there was.
    pub(super) fn take(&self) -> Counts {
        self.each(|counter| counter.swap(0, Ordering::Relaxed))
    }

    fn each(&self, read: impl Fn(&AtomicU64) -> u64) -> Counts {
        Counts {
            connections: read(&self.connections),
            requests: read(&self.requests),
            replies: read(&self.replies),
            pushes: read(&self.pushes),
            bytes_out: read(&self.bytes_out),
            bytes_back: read(&self.bytes_back),
        }
    }
}

/// Adds to a counter; nobody reads one to decide anything.
pub(super) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}
