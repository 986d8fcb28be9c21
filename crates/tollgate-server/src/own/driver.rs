//! Drives the table: requests in, answers out when the disk has what they depend on, and what is due.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, oneshot, watch};
use tollgate_core::{Age, Details, Moment};
use tollgate_embedded::durable::{Commit, Committer, Durability, Options, Store, StoreError, start};
use tollgate_proto::Problem;

use super::events::EventLog;
use super::watch::Watchers;
use crate::clock::{EngineClock, HEARTBEAT, boottime};
use crate::native::Registry;
use crate::show::unix_ms;
use crate::table::{Answer, Held, Key, Request, Source, Table};

/// The shortest ttl, in milliseconds.
pub(super) const SHORTEST_MS: u64 = 100;

/// Nothing is answered any more: the server stops, or its disk failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// How long changes that no answer waits for wait for others.
const UNAWAITED: Duration = Duration::from_millis(2);

/// The table of one server. It stays on one thread, and clones are handles to the same.
#[derive(Clone)]
pub struct TableService {
    pub(super) inner: Rc<Inner>,
}

pub(super) struct Inner {
    pub(super) table: RefCell<Table>,
    clock: RefCell<EngineClock>,
    /// Open requests.
    open: RefCell<HashMap<Source, oneshot::Sender<Answer>>>,
    next_connection: Cell<u64>,
    committer: Committer<Arc<Details>>,
    /// Changes or earlier dues may be there.
    changed: Notify,
    /// Whether the service stops: calls that wait for something end then.
    /// When the loop wakes by itself.
    sleeps_until: Cell<Moment>,
    /// Since when changes are there for the disk that no answer waits for.
    unawaited_since: Cell<Option<Moment>>,
    stopping: watch::Sender<bool>,
    is_stopped: Cell<bool>,
    /// Whether the disk has no room: nothing is granted until it has.
    is_full: Cell<bool>,
    grants_from: Cell<Option<Moment>>,
    pub(super) events: RefCell<EventLog>,
    pub(super) watchers: Watchers,
    pub(super) durability: Durability,
    /// The longest ttl with its lock-delay.
    pub(super) longest: Duration,
    pub(super) started_ms: u64,
    native: Registry,
}

/// The loop of a service: it has to be run for anything to be stored, or to expire.
pub struct Running {
    service: TableService,
    committed: UnboundedReceiver<Result<Commit, StoreError>>,
}

impl TableService {
    /// Starts on what `store` has.
    pub fn open(mut store: impl Store, options: &Options) -> Result<(Self, Running), StoreError> {
        let started = start(&mut store, options)?;
        let file = store.file().to_owned();
        let (sender, committed) = unbounded_channel();
        let committer = Committer::start(store, move |result| drop(sender.send(result)))
            .map_err(|error| StoreError::Io { file, detail: format!("no thread can be started: {error}") })?;
        let now = boottime();
        let inner = Inner {
            clock: RefCell::new(EngineClock::new(started.engine.now(), now)),
            table: RefCell::new(Table::new(started.engine)),
            open: RefCell::default(),
            next_connection: Cell::new(0),
            committer,
            changed: Notify::new(),
            sleeps_until: Cell::new(Moment::MAX),
            unawaited_since: Cell::new(None),
            stopping: watch::Sender::new(false),
            is_stopped: Cell::new(false),
            is_full: Cell::new(false),
            grants_from: Cell::new(started.wait.map(|wait| now + wait)),
            events: RefCell::new(EventLog::new()),
            watchers: Watchers::default(),
            durability: options.durability,
            longest: options.longest,
            started_ms: unix_ms(),
            native: Registry::new(options.durability, options.longest),
        };
        let service = Self { inner: Rc::new(inner) };
        Ok((service.clone(), Running { service, committed }))
    }

    /// Answers a request. A claim whose future is dropped is treated as one whose client is gone.
    pub async fn ask(&self, request: Request) -> Result<Answer, Stopped> {
        self.connection().ask(request).await
    }

    /// A connection of its own: what is attached to it loses its client when it is dropped.
    pub(super) fn connection(&self) -> Connection<'_> {
        let inner = &*self.inner;
        let connection = inner.next_connection.get();
        inner.next_connection.set(connection + 1);
        Connection { inner, connection, requests: Cell::new(0), is_idle: Cell::new(true) }
    }

    /// The connections of native clients.
    pub(crate) fn native(&self) -> &Registry {
        &self.inner.native
    }

    /// The number of a new native connection.
    pub(crate) fn connect(&self) -> u64 {
        self.inner.next_connection.replace(self.inner.next_connection.get() + 1)
    }

    /// Applies a native call at `now`. It is answered through [`native`](Self::native), at the end of the
    /// [`turn`](Self::turn) or later.
    pub(crate) fn request(&self, source: Source, request: Request, now: Moment) {
        self.inner.table.borrow_mut().request(source, request, now);
    }

    /// Answers a native call with the mark of a resource.
    pub(crate) fn mark(&self, source: Source, resource: &str) {
        self.inner.table.borrow_mut().tell_mark(source, resource);
    }

    /// Ends a turn in which native calls were applied. The loop is woken only if it has something to do: most
    /// calls leave nothing for the disk, and end no sooner than what it waits for already.
    pub(crate) fn turn(&self) {
        let inner = &*self.inner;
        inner.deliver();
        if inner.table.borrow().has_batch() || inner.next_due() < inner.sleeps_until.get() {
            inner.changed.notify_one();
        }
    }

    /// A native connection is gone.
    pub(crate) fn close(&self, connection: u64) {
        let now = self.inner.now();
        self.inner.table.borrow_mut().close(connection, now);
        self.turn();
    }

    /// The engine's time.
    pub(crate) fn now(&self) -> Moment {
        self.inner.now()
    }

    /// The age of a party whose first claim comes at `now`.
    pub(crate) fn age(&self, now: Moment) -> Age {
        self.inner.table.borrow_mut().age(now).0
    }

    /// Looks at the table, with the engine's time.
    pub fn look<T>(&self, look: impl FnOnce(&Table, Moment) -> T) -> T {
        let now = self.inner.now();
        look(&self.inner.table.borrow(), now)
    }

    /// Refuses a ttl that is longer than a restart may have to wait for.
    pub(super) fn check_ttl(&self, ttl_ms: u64, lock_delay_ms: u64) -> Result<(), Problem> {
        if ttl_ms < SHORTEST_MS {
            let rule = format!(
                "must be at least {SHORTEST_MS}: a shorter grant would be over before its answer arrives"
            );
            return Err(Problem::invalid("ttl_ms", rule));
        }
        let longest = self.inner.longest;
        let wanted = Duration::from_millis(ttl_ms.saturating_add(lock_delay_ms));
        if wanted <= longest {
            return Ok(());
        }
        let rule = format!(
            "may be at most {} on this server, with `lock_delay_ms` added: after an unclean stop or a \
             restored backup nothing is granted for as long as grants may last. Renew a shorter grant, \
             or start the server with a longer --max-ttl",
            longest.as_millis()
        );
        Err(Problem::invalid("ttl_ms", rule))
    }

    /// What is known of a grant.
    pub(crate) fn held(&self, key: &Key) -> Option<Held> {
        self.look(|table, _| table.held(key))
    }

    /// For how long nothing is granted yet, after an unclean start.
    pub fn wait(&self) -> Option<Duration> {
        self.inner.grants_from.get().map(|from| from.since(boottime())).filter(|left| !left.is_zero())
    }

    /// Whether the disk has no room.
    pub(super) fn is_full(&self) -> bool {
        self.inner.is_full.get()
    }

    /// Whether [`stop`](Self::stop) was called, or the disk failed.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.inner.stopping.borrow()
    }

    /// Completes when the service stops.
    pub(super) async fn stopped(&self) {
        // The sender lives as long as this handle.
        let _ = self.inner.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Stops cleanly: waiting clients are answered, what is granted is stored, and [`Running::run`] returns.
    pub fn stop(&self) {
        self.inner.stopping.send_replace(true);
    }
}

/// Requests whose claims have one client; dropped, that client is gone.
pub(super) struct Connection<'a> {
    inner: &'a Inner,
    connection: u64,
    requests: Cell<u64>,
    /// Whether nothing is attached to it, so that there is nothing to close.
    is_idle: Cell<bool>,
}

impl Connection<'_> {
    /// Answers a request.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Stopped> {
        let inner = self.inner;
        if inner.is_stopped.get() {
            return Err(Stopped);
        }
        let source = Source { connection: self.connection, request: self.requests.get() };
        self.requests.set(source.request + 1);
        let is_part = matches!(&request, Request::Acquire(acquire) if acquire.is_part);
        let was_idle = self.is_idle.replace(false);
        let (sender, mut answer) = oneshot::channel();
        inner.open.borrow_mut().insert(source, sender);
        let asked = Asked { inner, source };
        let now = inner.now();
        inner.table.borrow_mut().request(source, request, now);
        inner.deliver();
        inner.changed.notify_one();
        // Most answers are there by now.
        let answered = match answer.try_recv() {
            Ok(answer) => Ok(answer),
            Err(oneshot::error::TryRecvError::Closed) => Err(Stopped),
            Err(oneshot::error::TryRecvError::Empty) => answer.await.map_err(|_| Stopped),
        };
        drop(asked);
        // Of an answered request nothing is attached, unless it is part of a set.
        self.is_idle.set(was_idle && answered.is_ok() && !is_part);
        answered
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if self.is_idle.get() {
            return;
        }
        let now = self.inner.now();
        self.inner.table.borrow_mut().close(self.connection, now);
        self.inner.deliver();
        self.inner.changed.notify_one();
    }
}

/// An open request; dropped, nothing listens for its answer.
struct Asked<'a> {
    inner: &'a Inner,
    source: Source,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.inner.open.borrow_mut().remove(&self.source);
    }
}

impl Inner {
    pub(super) fn now(&self) -> Moment {
        self.clock.borrow_mut().at(boottime())
    }

    /// Gives the answers that may leave to their requests, and tells what happened.
    fn deliver(&self) {
        let answers = self.table.borrow_mut().take_answers();
        for (source, answer) in answers {
            let age = || self.table.borrow_mut().age(self.now()).0;
            let left = self.grants_from.get().map(|from| from.since(boottime()));
            if self.native.deliver((source.connection, source.request), &answer, age, left) {
                continue;
            }
            let open = self.open.borrow_mut().remove(&source);
            if let Some(open) = open {
                // The request may be gone; then its drop closes its claim.
                let _ = open.send(answer);
            }
        }
        let (happened, changed, told) = {
            let mut table = self.table.borrow_mut();
            (table.take_happened(), table.take_changed(), table.take_told())
        };
        self.native.tell(told);
        if !happened.is_empty() {
            self.native.happened(&happened);
            self.events.borrow_mut().append(happened);
        }
        self.watchers.wake(&changed);
    }

    /// Has the disk write what was gathered. What no answer waits for, as a release that was answered early, waits a moment for
    /// the next grant: one commit is enough for both.
    fn write(&self) {
        let mut table = self.table.borrow_mut();
        if table.has_batch() && !table.is_awaited() && !self.is_stopped.get() {
            let now = boottime();
            let since = self.unawaited_since.get().unwrap_or(now);
            if now < since + UNAWAITED {
                return self.unawaited_since.set(Some(since));
            }
        }
        self.unawaited_since.set(None);
        let batch = table.take_batch();
        if let Some(batch) = batch {
            // After a failure nothing is written; the failure itself ends the loop.
            self.committer.commit(batch);
        }
    }

    /// When there is something to do without a request.
    fn next_due(&self) -> Moment {
        let due = self.table.borrow().next_due().map(|due| self.clock.borrow().real(due));
        let heartbeat = boottime() + HEARTBEAT;
        let unawaited = self.unawaited_since.get().map(|since| since + UNAWAITED);
        let due = due.into_iter().chain(self.grants_from.get()).chain(unawaited).min();
        due.unwrap_or(heartbeat).min(heartbeat)
    }

    fn tick(&self) {
        let now = self.now();
        let mut table = self.table.borrow_mut();
        if self.grants_from.get().is_some_and(|from| boottime() >= from) {
            self.grants_from.set(None);
            table.end_wait(now);
        }
        table.tick(now);
    }
}

impl Running {
    /// Runs until [`TableService::stop`], or until the disk fails.
    pub async fn run(mut self) -> Result<(), StoreError> {
        let inner = self.service.inner.clone();
        let ended = self.turn_until_stopped(&inner).await;
        inner.is_stopped.set(true);
        inner.stopping.send_replace(true);
        let stopped = match ended {
            Ok(()) => self.stop_cleanly(&inner).await,
            error => error,
        };
        // Every open request hears that the server stops.
        inner.open.borrow_mut().clear();
        inner.native.stop();
        stopped
    }

    async fn turn_until_stopped(&mut self, inner: &Inner) -> Result<(), StoreError> {
        let mut stopping = inner.stopping.subscribe();
        loop {
            inner.deliver();
            inner.write();
            let due = inner.next_due();
            inner.sleeps_until.set(due);
            let pause = due.since(boottime());
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return Ok(()),
                committed = self.committed.recv() => self.take(inner, committed)?,
                () = inner.changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            inner.tick();
        }
    }

    /// Writes everything, and waits for it.
    async fn stop_cleanly(&mut self, inner: &Inner) -> Result<(), StoreError> {
        let now = inner.now();
        inner.table.borrow_mut().stop(now);
        loop {
            inner.deliver();
            inner.write();
            if inner.table.borrow().is_stored() {
                return Ok(());
            }
            let committed = self.committed.recv().await;
            self.take(inner, committed)?;
        }
    }

    fn take(&self, inner: &Inner, committed: Option<Result<Commit, StoreError>>) -> Result<(), StoreError> {
        let now = inner.now();
        match committed {
            Some(Ok(commit)) => {
                if inner.is_full.replace(false) && !inner.is_stopped.get() {
                    inner.table.borrow_mut().set_granting(true, now);
                }
                inner.table.borrow_mut().committed(commit, now);
                Ok(())
            }
            // The commit is repeated until there is room.
            Some(Err(StoreError::Full { .. })) if !inner.is_stopped.get() => {
                inner.is_full.set(true);
                inner.table.borrow_mut().disk_is_full(now);
                Ok(())
            }
            Some(Err(error)) => {
                inner.table.borrow_mut().set_granting(false, now);
                Err(error)
            }
            // The thread ends only after an error, which was taken.
            None => Ok(()),
        }
    }
}
