//! How a connection fares: what it still owes, and whether anything comes back.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counted by requests, by the stream below them, and looked at by whoever watches over the connection.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    unanswered: AtomicUsize,
    /// Requests that are over, and messages that came unasked.
    ended: AtomicU64,
    reads: AtomicU64,
    /// The server sent an answer that is too long.
    overlong: AtomicBool,
    /// Nobody watches because nothing was owed.
    idle: AtomicBool,
    busy: Notify,
}

/// A request that is under way. It is not any more when this is dropped.
pub(crate) struct UnderWay<'a>(&'a Pulse);

impl Pulse {
    /// A request is made.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.unanswered.fetch_add(1, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) {
            self.busy.notify_one();
        }
        UnderWay(self)
    }

    /// How many requests are under way.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// A message came that answers no request.
    pub(crate) fn pushed(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests are over, and how many messages came unasked.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// The server sends an answer that is too long to be read.
    pub(crate) fn note_overlong(&self) {
        self.overlong.store(true, Ordering::Relaxed);
    }

    /// Whether the server sent an answer that is too long.
    pub(crate) fn is_overlong(&self) -> bool {
        self.overlong.load(Ordering::Relaxed)
    }

    /// Something came back.
    pub(crate) fn came(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something came back.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Waits until a request is under way.
    pub(crate) async fn busy(&self) {
        self.idle.store(true, Ordering::SeqCst);
        while self.unanswered.load(Ordering::SeqCst) == 0 {
            self.busy.notified().await;
        }
        self.idle.store(false, Ordering::SeqCst);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
        self.0.unanswered.fetch_sub(1, Ordering::SeqCst);
    }
}
