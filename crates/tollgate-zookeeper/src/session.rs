//! A session of ZooKeeper's, and the task on the keeper that proves it alive.
//!
//! What proves it alive also keeps it alive: no other pings are needed. What answers prove, `trail.rs` says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tollgate_core::{Clock, Deadline, Error, ErrorKind, Keeper, Moment, Result};

use crate::calls::{Calls, commit_over, sync_over};
use crate::config::ZooKeeperConfig;
use crate::error::over;
use crate::floor::Floors;
use crate::open::{Opened, open};
use crate::paths::Layout;
use crate::trail::{self, Round, Trail, Unsafe};
use crate::wire::{Code, Fault, Link};

/// How long a session that nobody uses is kept for the next one who comes.
const IDLE: Duration = Duration::from_secs(10);
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
    proof: watch::Sender<Proof>,
    /// Asks the supervisor for a proof of life now.
    hurry: Notify,
    /// From when the time counts of a session that is not to be kept alive.
    unkept: watch::Sender<Option<Moment>>,
    users: Mutex<Users>,
}

/// How far it is proven alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Proof {
    /// When the leader heard of it, at the earliest.
    heard: Moment,
    /// How long it lives from there.
    ttl: Duration,
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
        let proof = watch::Sender::new(Proof { heard: Moment::ZERO, ttl: Duration::MAX });
        let life = Arc::new(Life {
            means: means.clone(),
            state: watch::Sender::new(State::Opening),
            proof,
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

    /// A place in it, whatever becomes of it.
    pub(crate) fn enter_anyway(self: &Arc<Self>) -> Seat {
        self.life.users().count += 1;
        Seat(self.clone())
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
        let proof = *self.life.proof.borrow();
        let counts_from = (*self.life.unkept.borrow()).unwrap_or(proof.heard);
        trail::deadline(counts_from, ttl.min(proof.ttl), self.life.tick())
    }

    /// Lets it end after its ttl, though we are here. `anew` if its time is to count from the last proof of life.
    pub(crate) fn let_end(&self, anew: bool) {
        self.life.unkept.send_if_modified(|unkept| {
            let counts = anew || unkept.is_none();
            if counts {
                *unkept = Some(self.life.proof.borrow().heard);
            }
            counts
        });
    }

    /// Waits for the next proof of life if the last is older than it should be. Fails if it is over.
    pub(crate) async fn refresh(&self, ttl: Duration) -> Result<()> {
        if self.is_fresh(ttl) {
            return Ok(());
        }
        let known = self.life.proof.borrow().heard;
        let mut proof = self.life.proof.subscribe();
        self.life.hurry.notify_one();
        tokio::select! {
            biased;
            later = proof.wait_for(|proof| proof.heard > known) => later.map(drop).map_err(|_| over()),
            () = self.ended() => Err(over()),
        }
    }

    /// Waits until the last proof of life is as new as it should be, or as it can be: of a server that is always late no more is to be
    /// expected, and others wait.
    pub(crate) async fn refresh_fully(&self, ttl: Duration) -> Result<()> {
        // The first may have begun long ago, and the second counts from there.
        for _ in 0..3 {
            self.refresh(ttl).await?;
        }
        Ok(())
    }

    /// Between two rounds a proof is up to two intervals old, and a round takes a while.
    fn is_fresh(&self, ttl: Duration) -> bool {
        let known = self.life.proof.borrow().heard;
        self.life.means.clock.now() < known + self.life.interval(ttl) * 5 / 2
    }

    /// Ends it, and everything that hangs on it.
    pub(crate) async fn close(&self) {
        self.life.users().closed = true;
        let status = match &*self.life.state.borrow() {
            State::Open(open) => {
                open.calls.close();
                Some(open.calls.status())
            }
            _ => None,
        };
        self.end();
        self.supervisor.abort();
        if let Some(mut status) = status {
            let _ = tokio::time::timeout(TO_CLOSE, status.wait_for(|status| status.has_ended)).await;
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
        let trail = Trail::new(asked, ttl, self.tick());
        self.publish(&trail);
        let floors = Arc::new(Floors::new(self.means.layout.floor()));
        self.state.send_replace(State::Open(Open { calls: calls.clone(), ttl, floors }));
        let over = tokio::select! {
            over = self.prove_alive(&calls, trail) => over,
            () = self.until_idle() => Over::Done,
            () = self.until_unkept(ttl) => Over::Done,
        };
        self.state.send_replace(State::Ended);
        match over {
            Over::Done => calls.close(),
            // Those who believe in its locks hear of it only now.
            Over::Shrunk => calls.hang_up(),
        }
    }

    fn publish(&self, trail: &Trail) {
        let proof = Proof { heard: trail.heard(), ttl: trail.ttl() };
        self.proof.send_if_modified(|known| std::mem::replace(known, proof) != proof);
    }

    async fn begin(&self, lasting: Lasting) -> Result<Opened> {
        let asked_for = match lasting {
            Lasting::Exactly(ttl) => ttl,
            Lasting::Longest => LONGEST,
        };
        let opened = open(&self.means.config, self.means.clock.clone(), asked_for).await?;
        match lasting {
            Lasting::Exactly(ttl) if opened.ttl != ttl => {
                let bound = if opened.ttl > ttl { "at least" } else { "at most" };
                Err(Error::invalid(format!(
                    "a session of this ZooKeeper lasts {bound} {:?}, not {ttl:?}; choose another ttl",
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

    /// Proves it alive again and again. Returns when the session has ended: ZooKeeper says so, or its leader has not been heard of
    /// for the whole ttl.
    async fn prove_alive(&self, calls: &Calls, mut trail: Trail) -> Over {
        let clock = &self.means.clock;
        let mut status = calls.status();
        // When the last round began.
        let mut tried = trail.heard();
        loop {
            let now = status.borrow_and_update().clone();
            if now.has_ended {
                return Over::Done;
            }
            if now.number != trail.connection() {
                tried = Moment::ZERO;
                if trail.moved(now.number, now.asked, now.timeout) == Err(Unsafe) {
                    return Over::Shrunk;
                }
            }
            self.publish(&trail);
            let proven = async {
                let Some(link) = &now.link else { return std::future::pending().await };
                self.until_due(&trail, tried).await;
                tried = clock.now();
                self.prove_over(link).await
            };
            tokio::select! {
                biased;
                // If nobody could tell any more, it is over, too.
                changed = status.changed() => if changed.is_err() { return Over::Done },
                () = clock.sleep_until(trail.heard() + trail.ttl()) => return Over::Done,
                round = proven => match round {
                    Ok(round) => trail.proved(round),
                    Err(Fault::Ended | Fault::Refused(Code::SESSION_EXPIRED)) => return Over::Done,
                    // It is tried again; a lost connection is told otherwise.
                    Err(_) => {}
                },
            }
        }
    }

    /// Completes when the next round may begin. `tried` is when the last one did.
    async fn until_due(&self, trail: &Trail, tried: Moment) {
        let clock = &self.means.clock;
        let soonest = trail.ready().max(tried + self.tick());
        let usual = tried + self.interval(trail.ttl());
        if !trail.is_doubtful() {
            tokio::select! {
                () = clock.sleep_until(usual.max(soonest)) => {}
                () = self.hurry.notified() => {}
            }
        }
        clock.sleep_until(soonest).await;
    }

    /// One round, over one connection.
    async fn prove_over(&self, link: &Link) -> Result<Round, Fault> {
        let clock = &self.means.clock;
        let began = clock.now();
        sync_over(link).await?;
        let sent = clock.now();
        commit_over(link).await?;
        Ok(Round { began, sent, answered: clock.now() })
    }
}

/// How a session came to its end.
enum Over {
    /// Nobody needs it any more, or it is no more.
    Done,
    /// It lives for less than was believed.
    Shrunk,
}
