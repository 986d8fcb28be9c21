//! A session: a lease of etcd's, and the task on the keeper that keeps it alive.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tollgate_core::capabilities::TtlRange;
use tollgate_core::{Clock, Deadline, Error, ErrorKind, LockName, Moment, Result};
use tonic::Streaming;

use crate::error::{Failure, Why, over};
use crate::link::Link;
use crate::links::Links;
use crate::proof::{RenewedIn, confirm};
use crate::slots::Slots;
use crate::wire::lease_client::LeaseClient;
use crate::wire::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest};

/// How long a session that nobody uses is kept for the next one who comes.
const IDLE: Duration = Duration::from_secs(10);
/// How long an answer to a keep-alive may take, at least and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));
/// Between two attempts to reach etcd.
const PAUSE: Duration = Duration::from_millis(50);

/// What a session needs of its client.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) links: Links,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ttl: TtlRange,
}

/// A session. Its supervisor ends when the last clone of the `Arc` around it is dropped; etcd then ends the lease after
/// its ttl.
pub(crate) struct Session {
    life: Arc<Life>,
    supervisor: AbortHandle,
}

/// What the supervisor and those who use the session share.
struct Life {
    means: Means,
    ttl: Duration,
    state: watch::Sender<State>,
    /// When the last proven keep-alive was sent.
    answered: watch::Sender<Moment>,
    /// Asks the supervisor for a keep-alive now.
    hurry: Notify,
    users: Mutex<Users>,
}

/// Who lives in a session.
struct Users {
    count: usize,
    slots: Slots,
    /// Since when there is nobody.
    idle: Moment,
    /// Nobody may come any more.
    closed: bool,
}

#[derive(Debug, Clone)]
enum State {
    Opening,
    Open(i64),
    /// It never came to be.
    Failed(ErrorKind, String),
    Ended,
}

/// A claim's right to live in a session, which is kept alive as long as somebody has one, and its number there.
pub(crate) struct Seat {
    session: Arc<Session>,
    name: LockName,
    slot: u32,
    clean: bool,
}

impl Seat {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The number of the claim among those of the session on the same name.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Lets the next one have the number: etcd has no key with it, and nothing that was sent can make or delete one. Without
    /// this nobody ever has it again.
    pub(crate) fn leave_clean(mut self) {
        self.clean = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let life = &self.session.life;
        let mut users = life.users();
        users.count -= 1;
        users.idle = life.means.clock.now();
        if self.clean {
            users.slots.give_back(&self.name, self.slot);
        }
    }
}

impl Session {
    /// Opens a session and keeps it alive, on the keeper: whoever waits for it may give up at any time.
    pub(crate) fn open(means: &Means, ttl: Duration) -> Arc<Self> {
        let users =
            Mutex::new(Users { count: 0, slots: Slots::default(), idle: means.clock.now(), closed: false });
        let (state, answered) = (watch::Sender::new(State::Opening), watch::Sender::new(Moment::ZERO));
        let life = Arc::new(Life { means: means.clone(), ttl, state, answered, hurry: Notify::new(), users });
        let supervisor = means.links.keeper().spawn(life.clone().supervise()).abort_handle();
        Arc::new(Self { life, supervisor })
    }

    /// A place in it for a claim on `name`; none once it is over.
    pub(crate) fn enter(self: &Arc<Self>, name: &LockName) -> Option<Seat> {
        let mut users = self.life.users();
        if users.closed || self.is_over() {
            return None;
        }
        users.count += 1;
        let slot = users.slots.take(name);
        Some(Seat { session: self.clone(), name: name.clone(), slot, clean: false })
    }

    /// The lease, once etcd has given it.
    pub(crate) async fn lease(&self) -> Result<i64> {
        if let State::Open(lease) = *self.life.state.borrow() {
            return Ok(lease);
        }
        let mut state = self.life.state.subscribe();
        let opened = state.wait_for(|state| !matches!(state, State::Opening)).await;
        match opened.map(|state| state.clone()) {
            Ok(State::Open(lease)) => Ok(lease),
            Ok(State::Failed(kind, message)) => Err(Error::new(kind, message)),
            _ => Err(over()),
        }
    }

    /// Whether it is open with this lease.
    pub(crate) fn is(&self, lease: i64) -> bool {
        matches!(*self.life.state.borrow(), State::Open(own) if own == lease)
    }

    /// Whether a new one is needed.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.life.state.borrow(), State::Failed(..) | State::Ended)
    }

    /// etcd says that it is no more.
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

    /// Until when etcd keeps it, as far as it has answered.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::counted_from(*self.life.answered.borrow(), self.life.ttl)
    }

    /// Whether etcd surely keeps it still.
    pub(crate) fn is_in_time(&self) -> bool {
        matches!(self.deadline(), Deadline::At(end) if self.life.means.clock.now() < end)
    }

    /// Has it renewed now if the last renewal is older than a sixth of the ttl. Fails if it is over.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let asked = self.life.means.clock.now();
        if asked < self.life.due() {
            return Ok(());
        }
        let mut answered = self.life.answered.subscribe();
        self.life.hurry.notify_one();
        tokio::select! {
            biased;
            // What was sent a moment before we asked is as good.
            heard = answered.wait_for(|sent| asked < *sent + self.life.ttl / 6) => heard.map(drop).map_err(|_| over()),
            () = self.ended() => Err(over()),
        }
    }

    /// Ends it at etcd, and everything that still hangs on it.
    pub(crate) async fn revoke(&self) {
        self.life.users().closed = true;
        let state = self.life.state.borrow().clone();
        if let State::Open(lease) = state {
            self.end();
            // If it fails the lease ends by itself.
            let _ = self.life.means.links.lease_revoke(LeaseRevokeRequest { id: lease }).await;
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

    /// When the next keep-alive is to be sent.
    fn due(&self) -> Moment {
        *self.answered.borrow() + self.ttl / 6
    }

    /// A keep-alive that was sent at `sent` was answered, and the answer proven.
    fn note(&self, sent: Moment) {
        self.answered.send_if_modified(|answered| {
            let later = sent > *answered;
            *answered = sent.max(*answered);
            later
        });
    }

    fn patience(&self) -> Duration {
        (self.ttl / 4).clamp(PATIENCE.0, PATIENCE.1)
    }

    /// A linearizable read may take longer than a keep-alive: it waits for the disks of a majority.
    fn read_patience(&self) -> Duration {
        (self.ttl / 3).clamp(PATIENCE.0, PATIENCE.1 * 2)
    }

    async fn supervise(self: Arc<Self>) {
        let lease = match self.grant().await {
            Ok(lease) => lease,
            Err(error) => {
                self.state.send_replace(State::Failed(error.kind(), error.message().to_owned()));
                return;
            }
        };
        self.state.send_replace(State::Open(lease));
        let mut idle = false;
        tokio::select! {
            () = self.keep_alive(lease) => {}
            () = self.until_idle() => idle = true,
        }
        self.state.send_replace(State::Ended);
        if idle {
            // If it fails the lease ends by itself.
            let _ = self.means.links.lease_revoke(LeaseRevokeRequest { id: lease }).await;
        }
    }

    async fn grant(&self) -> Result<i64> {
        let seconds = i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX);
        let sent = self.means.clock.now();
        let granted = self.means.links.lease_grant(LeaseGrantRequest { ttl: seconds, id: 0 }).await?;
        if granted.ttl != seconds {
            // etcd gives no less than its elections take, and says so only now.
            let _ = self.means.links.lease_revoke(LeaseRevokeRequest { id: granted.id }).await;
            let range = TtlRange { min: Duration::from_secs(granted.ttl.unsigned_abs()), ..self.means.ttl };
            return Err(Error::invalid(format!("this etcd takes a ttl of {range}, not {:?}", self.ttl)));
        }
        self.note(sent);
        Ok(granted.id)
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

    /// Returns when the session has ended: etcd says so, or has not been heard of for the whole ttl.
    async fn keep_alive(&self, lease: i64) {
        let clock = &self.means.clock;
        loop {
            // The first keep-alive opens the stream.
            tokio::select! {
                () = clock.sleep_until(self.due()) => {}
                () = self.hurry.notified() => {}
            }
            if let Err(Lost) = self.stream(lease).await {
                return;
            }
            // Guards are lost by their own deadlines; this only tells when to stop trying.
            if clock.now() >= *self.answered.borrow() + self.ttl {
                return;
            }
            clock.sleep_until(clock.now() + PAUSE.min(self.ttl / 20)).await;
        }
    }

    /// Keeps the lease alive over one stream, until that breaks.
    async fn stream(&self, lease: i64) -> Result<(), Lost> {
        let links = &self.means.links;
        let Ok(Ok(link)) = tokio::time::timeout(self.patience() * 2, links.link()).await else {
            return Ok(());
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        let (mut answers, mut sent) = (None, self.means.clock.now());
        // It is kept by the stream, which ends with it.
        let _ = sender.send(LeaseKeepAliveRequest { id: lease });
        let mut opening = pin!(self.opened(&link, receiver));
        loop {
            let answer = async {
                let answers = match &mut answers {
                    Some(answers) => answers,
                    none => none.insert(opening.as_mut().await?),
                };
                answers.message().await.map_err(Failure::from)
            };
            let renewed = match self.heard(&link, self.patience(), answer).await {
                Heard::Answer(Some(answer)) => RenewedIn::of(&answer).ok_or(Lost)?,
                Heard::NoLease => return Err(Lost),
                Heard::Answer(None) | Heard::Nothing => return Ok(()),
            };
            let read = match self.heard(&link, self.read_patience(), confirm(links, &link)).await {
                Heard::Answer(read) => read,
                Heard::NoLease | Heard::Nothing => return Ok(()),
            };
            if renewed.is_proven_by(read.as_ref()) {
                self.note(sent);
                tokio::select! {
                    () = self.means.clock.sleep_until(self.due()) => {}
                    () = self.hurry.notified() => {}
                }
            } else {
                // There was an election in between: only another keep-alive can be proven.
                self.means.clock.sleep_until(self.means.clock.now() + PAUSE.min(self.ttl / 20)).await;
            }
            sent = self.means.clock.now();
            if sender.send(LeaseKeepAliveRequest { id: lease }).is_err() {
                return Ok(());
            }
        }
    }

    /// Waits for an answer that comes over `link`, and sees to the connection if it does not.
    async fn heard<T>(
        &self,
        link: &Link,
        patience: Duration,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Heard<T> {
        let (links, asked) = (&self.means.links, Instant::now());
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => return Heard::Answer(answer),
            Ok(Err(failure)) if failure.why == Why::NoLease => return Heard::NoLease,
            Ok(Err(failure)) => drop(links.react(link, failure.why).await),
            Err(_) => links.suspect(link, asked),
        }
        Heard::Nothing
    }

    async fn opened(
        &self,
        link: &Link,
        requests: mpsc::UnboundedReceiver<LeaseKeepAliveRequest>,
    ) -> Result<Streaming<LeaseKeepAliveResponse>, Failure> {
        let requests =
            stream::unfold(requests, async |mut requests| Some((requests.recv().await?, requests)));
        let mut client = LeaseClient::with_origin(link.channel(), link.origin());
        let answers = client.lease_keep_alive(self.means.links.request(requests)).await?;
        Ok(answers.into_inner())
    }
}

/// What came over a connection.
enum Heard<T> {
    Answer(T),
    /// etcd says that the lease is gone.
    NoLease,
    /// No answer, or one that says nothing about the lease.
    Nothing,
}

/// One keep-alive for a lease that has no supervisor: when it was sent and what a read has to prove; `None` if the lease
/// is gone.
pub(crate) async fn keep_alive_once(
    links: &Links,
    clock: &dyn Clock,
    lease: i64,
) -> Result<Option<(Moment, RenewedIn)>> {
    const TO_ANSWER: Duration = Duration::from_secs(3);
    let link = links.link().await?;
    let (sent, asked_at) = (clock.now(), Instant::now());
    let asked = async {
        let requests = stream::iter([LeaseKeepAliveRequest { id: lease }]);
        let mut client = LeaseClient::with_origin(link.channel(), link.origin());
        let answers = client.lease_keep_alive(links.request(requests)).await?;
        answers.into_inner().message().await
    };
    match tokio::time::timeout(TO_ANSWER, asked).await {
        Ok(Ok(Some(answer))) => Ok(RenewedIn::of(&answer).map(|renewed| (sent, renewed))),
        Ok(Ok(None)) => Err(crate::error::unexpected("no answer to a keep-alive")),
        Ok(Err(status)) => {
            let failure = Failure::from(status);
            if failure.why == Why::NoLease {
                return Ok(None);
            }
            let _ = links.react(&link, failure.why).await;
            Err(failure.into())
        }
        Err(_) => {
            links.suspect(&link, asked_at);
            Err(Failure::silence().into())
        }
    }
}

/// etcd says that the lease is gone.
struct Lost;
