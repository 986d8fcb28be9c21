//! A session as its client sees it, and the task that keeps it alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tollgate_core::{Clock, Deadline, Error, ErrorKind, Keeper, Moment, Result};

use super::server::{Reply, Request};
use crate::fakes::wire::{Wire, unexpected};

/// What a session needs of its client.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) wire: Wire,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) keeper: Keeper,
}

/// A session. Its supervisor ends when the last clone of the `Arc` around it is dropped; the engine then
/// ends the session after its ttl.
pub(super) struct Session {
    life: Arc<Life>,
    supervisor: AbortHandle,
}

/// What the supervisor and those who use the session share.
struct Life {
    means: Means,
    ttl: Duration,
    state: watch::Sender<State>,
    /// When the last answered keep-alive was sent, in nanoseconds.
    answered: AtomicU64,
}

#[derive(Clone)]
enum State {
    Opening,
    Open(u64),
    /// It never came to be.
    Failed(ErrorKind, String),
    Ended,
}

impl Session {
    /// Opens a session and keeps it alive, on the keeper: whoever waits for it may give up at any time, and
    /// a blocked executor renews as well as any.
    pub(super) fn open(means: &Means, ttl: Duration, standalone: bool) -> Arc<Self> {
        let state = watch::Sender::new(State::Opening);
        let life = Arc::new(Life { means: means.clone(), ttl, state, answered: AtomicU64::new(0) });
        let supervisor = means.keeper.spawn(life.clone().supervise(standalone)).abort_handle();
        Arc::new(Self { life, supervisor })
    }

    /// Its number, once the engine has given it one.
    pub(super) async fn id(&self) -> Result<u64> {
        let mut state = self.life.state.subscribe();
        let opened = state.wait_for(|state| !matches!(state, State::Opening)).await;
        match opened.map(|state| state.clone()) {
            Ok(State::Open(id)) => Ok(id),
            Ok(State::Failed(kind, message)) => Err(Error::new(kind, message)),
            _ => Err(Error::new(ErrorKind::Unavailable, "the session ended; try again")),
        }
    }

    /// Whether it is open under this number.
    pub(super) fn is(&self, id: u64) -> bool {
        matches!(*self.life.state.borrow(), State::Open(own) if own == id)
    }

    /// Whether a new one is needed.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.life.state.borrow(), State::Failed(..) | State::Ended)
    }

    /// The engine says that it is no more.
    pub(super) fn end(&self) {
        self.life.state.send_replace(State::Ended);
    }

    /// Completes when it has ended.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.life.state.subscribe();
        async move {
            // An error would mean that nobody can tell any more: then nobody does.
            if state.wait_for(|state| matches!(state, State::Ended)).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Until when the engine keeps it, as far as it has answered.
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::counted_from(self.life.answered(), self.life.ttl)
    }

    /// Whether the last answered keep-alive is older than a sixth of the ttl.
    pub(super) fn is_stale(&self) -> bool {
        self.life.means.clock.now() >= self.life.due()
    }

    /// A keep-alive that was sent at `sent` was answered.
    pub(super) fn was_answered(&self, sent: Moment) {
        self.life.note(sent);
    }

    /// Renews it now if it is stale; `false` if it has ended.
    pub(super) async fn refresh(&self, id: u64) -> Result<bool> {
        if !self.is_stale() || self.life.renew(id).await? {
            return Ok(true);
        }
        self.end();
        Ok(false)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Life {
    fn answered(&self) -> Moment {
        Moment::from_nanos(self.answered.load(Ordering::Acquire))
    }

    /// Answers may overtake each other; the latest send counts.
    fn note(&self, sent: Moment) {
        self.answered.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    fn due(&self) -> Moment {
        self.answered() + self.ttl / 6
    }

    /// One keep-alive; `false` if the engine has no such session any more.
    async fn renew(&self, session: u64) -> Result<bool> {
        let sent = self.means.clock.now();
        match self.means.wire.call(&Request::Renew { session }).await? {
            Reply::Done => {
                self.note(sent);
                Ok(true)
            }
            Reply::NoSession => Ok(false),
            other => Err(unexpected(&other)),
        }
    }

    async fn supervise(self: Arc<Self>, standalone: bool) {
        let sent = self.means.clock.now();
        let opened = self.means.wire.call(&Request::Open { ttl: self.ttl, standalone }).await;
        let id = match opened {
            Ok(Reply::Opened(id)) => id,
            other => {
                let error = other.map_or_else(|error| error, |reply| unexpected(&reply));
                self.state.send_replace(State::Failed(error.kind(), error.message().to_owned()));
                return;
            }
        };
        self.note(sent);
        self.state.send_replace(State::Open(id));
        self.keep_alive(id).await;
        self.state.send_replace(State::Ended);
    }

    /// Returns when the session has ended: the engine says so, or has not been heard of for the whole ttl.
    async fn keep_alive(&self, id: u64) {
        let clock = &self.means.clock;
        let mut next = self.due();
        loop {
            clock.sleep_until(next).await;
            let renewed = tokio::select! {
                renewed = self.renew(id) => renewed.ok(),
                () = clock.sleep_until(clock.now() + self.ttl / 3) => None,
            };
            next = match renewed {
                Some(true) => self.due(),
                Some(false) => return,
                // Guards are lost by their own deadlines; this only tells when to stop trying.
                None if clock.now() >= self.answered() + self.ttl => return,
                None => clock.now() + self.ttl / 10,
            };
        }
    }
}
