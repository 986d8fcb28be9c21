//! One open connection, as callers see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tollgate_core::{Clock, Error, Moment, Result};
use tollgate_proto::frame::{Call, Welcome};

use crate::calls::{Calls, Open, Told};
use crate::error::unanswered;

/// An open connection. Clones are the same one; it is closed when the last is dropped.
#[derive(Clone)]
pub(crate) struct Link(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
}

/// What callers and the driver of a connection share.
pub(crate) struct Shared {
    calls: Mutex<Calls>,
    clock: Arc<dyn Clock>,
    welcome: Welcome,
}

impl Shared {
    pub(crate) fn new(calls: Calls, clock: Arc<dyn Clock>, welcome: Welcome) -> Self {
        Self { calls: Mutex::new(calls), clock, welcome }
    }

    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Ends the connection: every open call hears that it is not answered.
    pub(crate) fn close(&self) {
        let mut calls = self.calls();
        calls.close();
        let waker = calls.waker.take();
        drop(calls);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Handle { shared }))
    }

    /// What the server said of itself.
    pub(crate) fn welcome(&self) -> &Welcome {
        &self.0.shared.welcome
    }

    /// Whether nothing can be sent over it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.shared.calls().is_closed
    }

    /// Sends a call. What it is told goes to `open`; if the connection is closed, `open` is
    /// dropped.
    pub(crate) fn send(&self, call: &Call<'_>, open: Option<Open>) -> u32 {
        let shared = &self.0.shared;
        let mut calls = shared.calls();
        if calls.is_closed {
            return 0;
        }
        // Before anything of it is written.
        let number = calls.add(call, open, shared.now());
        let waker = calls.waker.take();
        drop(calls);
        if let Some(waker) = waker {
            waker.wake();
        }
        number
    }

    /// Sends a call and waits for its answer, as long as the connection lives.
    pub(crate) async fn ask(&self, call: &Call<'_>) -> Result<Told> {
        let (open, told) = Open::call();
        self.send(call, Some(open));
        answered(told).await
    }

    /// Forgets an open call.
    pub(crate) fn forget(&self, number: u32) {
        self.0.shared.calls().forget(number);
    }
}

/// Waits for an answer, or the end of the connection.
pub(crate) async fn answered(told: oneshot::Receiver<Told>) -> Result<Told, Error> {
    told.await.map_err(|_| unanswered())
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}
