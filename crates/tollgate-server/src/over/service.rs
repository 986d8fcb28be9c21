//! An engine behind the server as a [`Service`].

use std::rc::Rc;

use tokio::sync::watch;
use tollgate_core::capabilities::{Adopt, Liveness};
use tollgate_core::{Error, ErrorKind, Locks};
use tollgate_proto::{
    self as proto, Acquire, AcquireAll, Admit, Admitted, Break, Broken, Deadlocks, EventId, EventsQuery,
    Extend, Grant, Grants, HealthStatus, Info, Keep, Kept, Limits, LockQuery, LocksQuery, Problem,
    ProblemKind, Release, Released, Timestamp, Top, Withdraw,
};

use super::claims::Claims;
use super::{calls, look};
use crate::service::{Answering, EventStream, Looked, Service};
use crate::show;

/// A server over another engine. Clones are handles to the same.
#[derive(Clone)]
pub struct OverService {
    pub(super) locks: Locks,
    pub(super) claims: Rc<Claims>,
    read_only: bool,
    boot: u64,
    started_ms: u64,
    stopping: Rc<watch::Sender<bool>>,
}

impl OverService {
    /// Serves the locks of an engine whose grants live without the process that asked for them.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if its grants die with the server.
    pub fn new(locks: Locks) -> Result<Self, Error> {
        let capabilities = locks.capabilities();
        let reason = match (capabilities.liveness, capabilities.adopt) {
            (Liveness::Process, _) => "its locks live and die with the process that takes them",
            (_, Adopt::Never) => "its sessions live and die with the process that opens them",
            _ => return Ok(Self::over(locks, false)),
        };
        let message = format!(
            "a server cannot keep locks of {} for its clients: {reason}. Use redis, redlock, etcd, postgres or \
             mysql, or pass --read-only to look at its locks",
            capabilities.backend
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Shows the locks of any engine, and changes none.
    pub fn read_only(locks: Locks) -> Self {
        Self::over(locks, true)
    }

    fn over(locks: Locks, read_only: bool) -> Self {
        let (boot, started_ms) = (look::boot(), show::unix_ms());
        Self {
            locks,
            claims: Rc::default(),
            read_only,
            boot,
            started_ms,
            stopping: Rc::new(watch::Sender::new(false)),
        }
    }

    /// The server stops: calls that wait are answered so, and health says so. Claims under way are
    /// withdrawn by [`Locks::close`].
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(super) fn check_writable(&self) -> Result<(), Problem> {
        if *self.stopping.borrow() {
            return Err(super::problems::stopping());
        }
        if self.read_only {
            let detail = "this server only shows locks; it was started with --read-only";
            return Err(Problem::new(ProblemKind::Forbidden, detail));
        }
        Ok(())
    }

    /// Answers a call that may wait, unless the server stops before.
    async fn unless_stopped<T>(&self, call: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            answer = call => answer,
            _ = stopping.wait_for(|stopping| *stopping) => Err(super::problems::stopping()),
        }
    }

    fn info(&self) -> Info {
        let capabilities = self.locks.capabilities();
        Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot: format!("{:016x}", self.boot),
            started_at: Timestamp::from_unix_ms(self.started_ms),
            store: capabilities.backend.to_owned(),
            durability: proto::Durability::Engine.into(),
            read_only: self.read_only,
            capabilities: show::capabilities(capabilities),
            guarantees: show::guarantees(&capabilities.guarantees),
            limits: Limits::of_protocol(),
        }
    }
}

impl Service for OverService {
    fn acquire(&self, call: Acquire) -> Answering<'_, Grant> {
        Box::pin(async move {
            let mut grants = self.unless_stopped(calls::acquire(self, vec![call])).await?;
            grants.pop().ok_or_else(super::problems::lost)
        })
    }

    fn acquire_all(&self, call: AcquireAll) -> Answering<'_, Grants> {
        Box::pin(async move {
            let grants = self.unless_stopped(calls::acquire(self, call.each())).await?;
            Ok(Grants { grants })
        })
    }

    fn keep(&self, call: Keep) -> Answering<'_, Kept> {
        Box::pin(self.unless_stopped(calls::keep(self, call)))
    }

    fn extend(&self, call: Extend) -> Answering<'_, Grant> {
        Box::pin(calls::extend(self, call))
    }

    fn release(&self, call: Release) -> Answering<'_, Released> {
        Box::pin(calls::release(self, call))
    }

    fn withdraw(&self, call: Withdraw) -> Answering<'_, Released> {
        Box::pin(calls::withdraw(self, call))
    }

    fn admit(&self, _: Admit) -> Answering<'_, Admitted> {
        Box::pin(async { self.check_writable().and_then(|()| calls::admit()) })
    }

    fn break_lock(&self, call: Break) -> Answering<'_, Broken> {
        Box::pin(calls::break_lock(self, call))
    }

    fn lock(&self, query: LockQuery, known: Option<String>) -> Answering<'_, Looked> {
        Box::pin(self.unless_stopped(look::lock(self, query, known)))
    }

    fn locks(&self, query: LocksQuery) -> Answering<'_, proto::Locks> {
        Box::pin(look::locks(self, query))
    }

    fn events(&self, query: EventsQuery, last: Option<EventId>) -> Answering<'_, EventStream> {
        let (locks, boot) = (self.locks.clone(), self.boot);
        Box::pin(async move { Ok(look::events(locks, boot, query.prefix, last.is_some())) })
    }

    fn top(&self) -> Answering<'_, Top> {
        Box::pin(look::top(self))
    }

    fn deadlocks(&self) -> Answering<'_, Deadlocks> {
        let none = Deadlocks { nodes: Vec::new(), edges: Vec::new(), circles: Vec::new() };
        Box::pin(async move { Ok(none) })
    }

    fn info(&self) -> Answering<'_, Info> {
        Box::pin(async { Ok(self.info()) })
    }

    fn health(&self) -> HealthStatus {
        if *self.stopping.borrow() { HealthStatus::Stopping } else { HealthStatus::Ok }
    }
}
