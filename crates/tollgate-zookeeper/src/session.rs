//! A session of ZooKeeper's, and the task on the keeper that proves it alive.
//!
//! The driver's own pings keep it alive; whether they do, only answers of the leader show (`trail.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tollgate_core::{Clock, Deadline, Error, ErrorKind, Keeper, Moment, Result};
use zookeeper_client::{SessionState, StateWatcher};

use crate::calls::Calls;
use crate::config::ZooKeeperConfig;
use crate::error::{Trouble, over};
use crate::floor::Floors;
use crate::open::{Opened, open};
use crate::paths::Layout;
use crate::trail::{self, Trail};

/// How long a session that nobody uses is kept for the next one who comes.
const IDLE: Duration = Duration::from_secs(10);
/// How long an answer to a `sync` may take, at least and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));
/// How long a caller is kept waiting for the end of a session that nobody needs any more.
const TO_CLOSE: Duration = Duration::from_secs(1);
/// The longest session that can be asked for.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// What a session needs of its client.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) config: Arc<ZooKeeperConfig>,
    pub(crate) layout: Layout,
    pub(crate) keeper: Keeper,
    pub(crate) clock: Arc<dyn Clock>,
}

/// For how long a session is to live without being heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// So long, and nothing else.
    Exactly(Duration),
    /// As long as ZooKeeper lets it.
    Longest,
}

/// A session. It ends when the last clone of the `Arc` around it is dropped.
pub(crate) struct Session {
    life: Arc<Life>,
    supervisor: AbortHandle,
}

/// What the supervisor and those who use the session share.
struct Life {
    means: Means,
    state: watch::Sender<State>,
    /// When the leader heard of it, at the earliest.
    heard: watch::Sender<Moment>,
    /// Asks the supervisor for a proof of life now.
    hurry: Notify,
    /// From when the time counts of a session that is not to be kept alive.
    unkept: watch::Sender<Option<Moment>>,
    users: Mutex<Users>,
}

/// Who lives in a session.
struct Users {
    count: usize,
    /// Since when there is nobody.
    idle: Moment,
    /// Nobody may come any more.
    closed: bool,
}

#[derive(Clone)]
enum State {
    Opening,
    Open(Open),
    /// It never came to be.
    Failed(ErrorKind, String),
    Ended,
}

/// A session that ZooKeeper has given.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) calls: Calls,
    pub(crate) ttl: Duration,
    pub(crate) floors: Arc<Floors>,
}

/// A claim's right to live in a session, which is kept alive as long as somebody has one.
pub(crate) struct Seat(Arc<Session>);

impl Seat {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let life = &self.0.life;
        let mut users = life.users();
        users.count -= 1;
        users.idle = life.means.clock.now();
    }
}

impl Session {
    /// Opens a session, on the keeper: whoever waits for it may give up at any time.
    pub(crate) fn open(means: &Means, lasting: Lasting) -> Arc<Self> {
        let users = Mutex::new(Users { count: 0, idle: means.clock.now(), closed: false });
        let (state, heard) = (watch::Sender::new(State::Opening), watch::Sender::new(Moment::ZERO));
        let life = Arc::new(Life {
            means: means.clone(),
            state,
            heard,
            hurry: Notify::new(),
            unkept: watch::Sender::new(None),
            users,
        });
        let supervisor = means.keeper.spawn(life.clone().supervise(lasting)).abort_handle();
        Arc::new(Self { life, supervisor })
    }

    /// A place in it; none once it is over.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Seat> {
        let mut users = self.life.users();
        if users.closed || self.is_over() {
            return None;
        }
        users.count += 1;
        Some(Seat(self.clone()))
    }

    /// What it is, once ZooKeeper has given it.
    pub(crate) async fn opened(&self) -> Result<Open> {
        if let State::Open(open) = &*self.life.state.borrow() {
            return Ok(open.clone());
        }
        let mut state = self.life.state.subscribe();
        let opened = state.wait_for(|state| !matches!(state, State::Opening)).await;
        match opened.map(|state| state.clone()) {
            Ok(State::Open(open)) => Ok(open),
            Ok(State::Failed(kind, message)) => Err(Error::new(kind, message)),
            _ => Err(over()),
        }
    }

    /// Whether a new one is needed.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.life.state.borrow(), State::Failed(..) | State::Ended)
    }

    /// ZooKeeper says that it is no more.
    pub(crate) fn end(&self) {
        self.life.state.send_replace(State::Ended);
    }

    /// Completes when it has ended.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.life.state.subscribe();
        async move {
            // An error would mean that nobody can tell any more: then nobody does.
            if state.wait_for(|state| matches!(state, State::Ended)).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Until when it is there, as far as ZooKeeper's leader has answered.
    pub(crate) fn deadline(&self, ttl: Duration) -> Deadline {
        let counts_from = (*self.life.unkept.borrow()).unwrap_or(*self.life.heard.borrow());
        trail::deadline(counts_from, ttl, self.life.tick())
    }

    /// Lets it end after its ttl, though we are here. `anew` if its time is to count from the last proof of life.
    pub(crate) fn let_end(&self, anew: bool) {
        self.life.unkept.send_if_modified(|unkept| {
            let counts = anew || unkept.is_none();
            if counts {
                *unkept = Some(*self.life.heard.borrow());
            }
            counts
        });
    }

    /// Waits for the next proof of life if the last is older than it should be. Fails if it is over.
    pub(crate) async fn refresh(&self, ttl: Duration) -> Result<()> {
        let known = *self.life.heard.borrow();
        if self.life.means.clock.now() < known + self.life.interval(ttl) * 3 + self.life.tick() {
            return Ok(());
        }
        let mut heard = self.life.heard.subscribe();
        self.life.hurry.notify_one();
        tokio::select! {
            biased;
            later = heard.wait_for(|later| *later > known) => later.map(drop).map_err(|_| over()),
            () = self.ended() => Err(over()),
        }
    }

    /// Ends it, and everything that hangs on it.
    pub(crate) async fn close(&self) {
        self.life.users().closed = true;
        let states = match &*self.life.state.borrow() {
            State::Open(open) => Some(open.calls.states()),
            _ => None,
        };
        self.end();
        // It has a hand on the driver, too, which closes the session when the last one lets go.
        self.supervisor.abort();
        if let Some(mut states) = states {
            let closed = async { while !states.changed().await.is_terminated() {} };
            let _ = tokio::time::timeout(TO_CLOSE, closed).await;
        }
    }

    /// Whether somebody lives in it.
    pub(crate) fn is_used(&self) -> bool {
        self.life.users().count > 0
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Life {
    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) -> Duration {
        self.means.config.tick
    }

    /// How often the leader is asked.
    fn interval(&self, ttl: Duration) -> Duration {
        self.tick().max(ttl / 12)
    }

    async fn supervise(self: Arc<Self>, lasting: Lasting) {
        let Opened { calls, asked, ttl } = match self.begin(lasting).await {
            Ok(opened) => opened,
            Err(error) => {
                self.state.send_replace(State::Failed(error.kind(), error.message().to_owned()));
                return;
            }
        };
        self.heard.send_replace(asked);
        let states = calls.states();
        let floors = Arc::new(Floors::new(self.means.layout.floor()));
        self.state.send_replace(State::Open(Open { calls: calls.clone(), ttl, floors }));
        let trail = Trail::new(asked, self.tick());
        tokio::select! {
            () = self.prove_alive(&calls, states, trail, ttl) => {}
            () = self.until_idle() => {}
            () = self.until_unkept(ttl) => {}
        }
        self.state.send_replace(State::Ended);
    }

    async fn begin(&self, lasting: Lasting) -> Result<Opened> {
        let asked_for = match lasting {
            Lasting::Exactly(ttl) => ttl,
            Lasting::Longest => LONGEST,
        };
        let opened = open(&self.means.config, &*self.means.clock, asked_for).await?;
        match lasting {
            Lasting::Exactly(ttl) if opened.ttl != ttl => {
                let bound = if opened.ttl > ttl { "at least" } else { "at most" };
                Err(Error::invalid(format!(
                    "a session of this ZooKeeper lasts {bound} {:?}, not {ttl:?}; take another ttl",
                    opened.ttl
                )))
            }
            _ => Ok(opened),
        }
    }

    /// Completes when nobody has lived here for a while; nobody can come any more then.
    async fn until_idle(&self) {
        loop {
            let end = {
                let mut users = self.users();
                let now = self.means.clock.now();
                let end = if users.count > 0 { now + IDLE } else { users.idle + IDLE };
                if now >= end {
                    users.closed = true;
                    return;
                }
                end
            };
            self.means.clock.sleep_until(end).await;
        }
    }

    /// Completes when a session that is not to be kept alive has had its time.
    async fn until_unkept(&self, ttl: Duration) {
        let mut unkept = self.unkept.subscribe();
        loop {
            let counts_from = *unkept.borrow_and_update();
            let end = async {
                match counts_from {
                    Some(moment) => self.means.clock.sleep_until(moment + ttl).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end => return,
                // It is ours, so that it cannot be gone.
                _ = unkept.changed() => {}
            }
        }
    }

    /// Asks the leader again and again. Returns when the session has ended: ZooKeeper says so, or its leader has not been heard of
    /// for the whole ttl.
    async fn prove_alive(&self, calls: &Calls, mut states: StateWatcher, mut trail: Trail, ttl: Duration) {
        let clock = &self.means.clock;
        let patience = (ttl / 4).clamp(PATIENCE.0, PATIENCE.1);
        // When the connection was there, and when the leader was asked.
        let (mut there, mut asked) = (trail.heard(), trail.heard());
        // What came before belongs to the first connection.
        states.state();
        loop {
            self.heard.send_if_modified(|heard| std::mem::replace(heard, trail.heard()) != *heard);
            let pause = if trail.is_young() { self.tick() } else { self.interval(ttl) };
            let due = async {
                tokio::select! {
                    () = clock.sleep_until(asked + pause) => {}
                    () = self.hurry.notified() => clock.sleep_until(asked + self.tick()).await,
                }
                // What is asked while there is no connection would be sent with the next one.
                if states.peek_state() == SessionState::Disconnected {
                    std::future::pending().await
                }
            };
            let mut changes = states.clone();
            tokio::select! {
                biased;
                state = changes.changed() => {
                    states.state();
                    match state {
                        SessionState::Disconnected => trail.lost(),
                        state if state.is_terminated() => return,
                        _ => trail.moved(there),
                    }
                    continue;
                }
                () = clock.sleep_until(trail.heard() + ttl) => return,
                () = due => {}
            }
            asked = clock.now();
            there = asked;
            match tokio::time::timeout(patience, calls.sync("/")).await {
                Ok(Err(Trouble::Ended)) => return,
                // If it changed meanwhile, nobody knows over which connection that came.
                Ok(Ok(())) if states.clone().changed().now_or_never().is_none() => trail.note(asked),
                _ => {}
            }
        }
    }
}
