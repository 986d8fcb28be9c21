//! The way to etcd: the connection that is used now, what replaces it, and how something is asked over it.
//!
//! A connection is driven by a task on the runtime that opened it. Callers use their own, which spares two wakes of another
//! thread for each request; sessions, watches and everything in the background use the keeper's, which no caller can block.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::{Handle, Id};
use tollgate_core::tls;
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Keeper, Result};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Response, Status};

use crate::channel::Channel;
use crate::config::{EtcdConfig, Login};
use crate::error::{Executed, Failure, Why};
use crate::link::{Link, WeakLink};
use crate::restored;
use crate::wire::auth_client::AuthClient;
use crate::wire::maintenance_client::MaintenanceClient;
use crate::wire::{AuthenticateRequest, StatusRequest};

/// What is spoken inside of an encrypted connection; etcd has nothing else.
const HTTP2: &str = "h2";
/// How long a member may take to be connected to and to say its first word.
const TO_CONNECT: Duration = Duration::from_secs(3);
/// How long members are asked again that are there and know of no leader.
const TO_FIND_A_LEADER: Duration = Duration::from_secs(5);
/// Between two times.
const BETWEEN: Duration = Duration::from_millis(100);
/// After how long the next endpoint is tried beside one that has not answered yet.
const STAGGER: Duration = Duration::from_millis(200);
/// How long a request may take that cannot be repeated: longer than an election. Three times as long over a connection that is
/// alive: etcd itself gives up before that.
const TO_ANSWER: Duration = Duration::from_secs(3);
/// How long an acquire may take before another copy of it is sent: about an election.
const TO_ELECT: Duration = Duration::from_secs(1);
/// How often it is asked whether there was one, while something is not answered.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long one that can be repeated may take before it is, for the first time; then twice that, and so on.
const TO_REPEAT: Duration = Duration::from_millis(500);
/// How long all repetitions may take.
const ALL_TOGETHER: Duration = Duration::from_secs(8);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// The oldest etcd that lets clients number their watches.
const OLDEST: (u32, u32) = (3, 4);

/// The way to etcd. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Links(Arc<Inner>);

struct Inner {
    endpoints: Vec<Host>,
    login: Option<Login>,
    tls: Option<Arc<rustls::ClientConfig>>,
    keeper: Keeper,
    asks: Asks,
    prefix: String,
    current: Mutex<Current>,
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Members that have a leader.
    TheLed,
    /// Any member: how it is, it knows without a leader.
    Anybody,
}

#[derive(Default)]
struct Current {
    /// Each runtime's connection.
    seats: HashMap<Id, Seat>,
    token: Option<MetadataValue<Ascii>>,
    /// Which cluster this is, since somebody has answered.
    cluster: Option<u64>,
    /// How far the log of the member that answered last is behind its data.
    behind: u64,
    /// When each endpoint last failed us: those that did long ago, or never, are tried first.
    failed: Vec<Option<Instant>>,
    /// Those that only serve what was under way when they were left.
    left: Vec<WeakLink>,
    closed: bool,
}

/// Where a runtime's connection is, or will be.
#[derive(Default)]
struct Seat {
    link: Option<Link>,
    /// Whoever opens one holds it.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// When no endpoint could be reached, and why: those who waited need not try again one after the other.
    nobody: Option<(Instant, ErrorKind, String)>,
}

/// A connection to a member that answers.
struct Opened {
    link: Link,
    token: Option<MetadataValue<Ascii>>,
    /// Whether that member is the leader, as it says.
    leads: bool,
    /// Whether it knows of one.
    led: bool,
    /// The cluster that it is in.
    cluster: u64,
    behind: u64,
}

/// Whether a request may be sent again though nobody knows whether it was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It reads, or does the same the second time.
    Yes,
    /// Never.
    No,
    /// By its caller, who makes another request of it, until then.
    ByCaller(Instant),
}

impl Links {
    pub(crate) fn new(config: &EtcdConfig, keeper: Keeper) -> Result<Self> {
        Self::to(config, keeper, Asks::TheLed)
    }

    pub(crate) fn to(config: &EtcdConfig, keeper: Keeper, asks: Asks) -> Result<Self> {
        let failed = vec![None; config.endpoints.len()];
        Ok(Self(Arc::new(Inner {
            endpoints: config.endpoints.clone(),
            login: config.login.clone(),
            tls: config.tls.as_ref().map(|files| tls::client(files, &[HTTP2])).transpose()?,
            keeper,
            asks,
            prefix: config.prefix.clone(),
            current: Mutex::new(Current { failed, ..Current::default() }),
        })))
    }

    /// How far the log of the member that answered last is behind its data: it was restored from a backup.
    pub(crate) fn behind(&self) -> u64 {
        self.current().behind
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.0.keeper
    }

    /// This runtime's connection, opened if there is none.
    pub(crate) async fn link(&self) -> Result<Link> {
        let runtime = Handle::current().id();
        if let Some(link) = self.seated(runtime)? {
            return Ok(link);
        }
        let came = Instant::now();
        let opening = self.current().seats.entry(runtime).or_default().opening.clone();
        let _alone = opening.lock().await;
        if let Some(link) = self.seated(runtime)? {
            return Ok(link);
        }
        let nobody = self.current().seats.get(&runtime).and_then(|seat| seat.nobody.clone());
        if let Some((at, kind, message)) = nobody
            && at > came
        {
            return Err(Error::new(kind, message));
        }
        // In a task: whoever waits for it may give up at any time, and the next one finds it then.
        let links = self.clone();
        let opened = tokio::spawn(async move { links.open_for(runtime).await }).await;
        opened.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Unavailable, "connecting did not come to an end; try again")
                .caused_by(error))
        })
    }

    async fn open_for(&self, runtime: Id) -> Result<Link> {
        let opened = self.open().await;
        let mut current = self.current();
        match opened {
            Ok(Opened { link, token, cluster, behind, .. }) => {
                if current.closed {
                    return Err(closed());
                }
                (current.cluster, current.behind) = (Some(cluster), behind);
                // Runtimes that are gone took their connections with them.
                current.seats.retain(|id, seat| {
                    *id == runtime || seat.link.as_ref().is_none_or(|link| !link.is_closed())
                });
                current.seats.entry(runtime).or_default().link = Some(link.clone());
                current.token = token;
                Ok(link)
            }
            Err(error) => {
                let nobody = (Instant::now(), error.kind(), error.message().to_owned());
                current.seats.entry(runtime).or_default().nobody = Some(nobody);
                Err(error)
            }
        }
    }

    fn seated(&self, runtime: Id) -> Result<Option<Link>> {
        let current = self.current();
        if current.closed {
            return Err(closed());
        }
        let link = current.seats.get(&runtime).and_then(|seat| seat.link.as_ref());
        Ok(link.filter(|link| !link.is_closed()).cloned())
    }

    /// The leader, if it is among the endpoints and answers soon: others have to ask it, too. Else the first that answers, those
    /// that failed least lately first, and the next one tried when one hesitates. The first time all are asked that answer soon:
    /// they must be of one cluster. Members that elect a leader are waited for.
    async fn open(&self) -> Result<Opened> {
        let end = Instant::now() + TO_FIND_A_LEADER;
        loop {
            let first = self.first_to_answer().await?;
            // Who knows only one member asks that: it says so itself of each request.
            if first.led || self.0.endpoints.len() == 1 || self.0.asks == Asks::Anybody {
                return self.best(first).await;
            }
            if Instant::now() + BETWEEN >= end {
                let host = &self.0.endpoints[first.link.endpoint()];
                let message = format!("etcd at {host} knows of no leader; are most members up?");
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            self.note_failure(first.link.endpoint());
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// The endpoints, those that failed least lately first.
    fn in_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.0.endpoints.len()).collect();
        order.sort_by_key(|endpoint| self.current().failed[*endpoint]);
        order
    }

    /// The first member that answers and knows of a leader; if there is none, one that answers.
    async fn first_to_answer(&self) -> Result<Opened> {
        let attempts = self.in_order().into_iter().zip(0..).map(|(endpoint, place)| async move {
            tokio::time::sleep(STAGGER * place).await;
            self.greet_in_time(endpoint).await
        });
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        let (mut worst, mut without_leader) = (None, None);
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok(opened) if opened.led => return Ok(opened),
                Ok(opened) => without_leader = Some(opened),
                // What must be changed says more than that somebody was not there.
                Err(error) if worst.as_ref().is_none_or(Error::is_retryable) => worst = Some(error),
                Err(_) => {}
            }
        }
        match (worst, without_leader) {
            (Some(error), _) if !error.is_retryable() => Err(error),
            (_, Some(opened)) => Ok(opened),
            (worst, None) => {
                Err(worst.unwrap_or_else(|| Error::invalid("a URL of an etcd names at least one host")))
            }
        }
    }

    /// The leader if it answers soon, else `first`.
    async fn best(&self, first: Opened) -> Result<Opened> {
        let known = self.current().cluster;
        if first.leads && known.is_some() {
            return Ok(first);
        }
        let others = self.in_order().into_iter().filter(|endpoint| *endpoint != first.link.endpoint());
        let mut others: FuturesUnordered<_> = others.map(|endpoint| self.greet_in_time(endpoint)).collect();
        let (until, mut best) = (tokio::time::Instant::now() + STAGGER, first);
        while let Ok(Some(other)) = tokio::time::timeout_at(until, others.next()).await {
            let Ok(other) = other else { continue };
            if other.cluster != best.cluster {
                return Err(self.of_strangers(&best.link, &other.link));
            }
            if other.leads && !best.leads {
                best = other;
            }
            if best.leads && known.is_some() {
                break;
            }
        }
        Ok(best)
    }

    fn of_strangers(&self, one: &Link, other: &Link) -> Error {
        let (one, other) = (&self.0.endpoints[one.endpoint()], &self.0.endpoints[other.endpoint()]);
        let message = format!(
            "{one} and {other} are of two clusters, which know nothing of each other's locks; name members of one"
        );
        Error::new(ErrorKind::Config, message)
    }

    async fn greet_in_time(&self, endpoint: usize) -> Result<Opened> {
        let opened = tokio::time::timeout(TO_CONNECT, self.greet(endpoint)).await;
        let late = |_| {
            let host = &self.0.endpoints[endpoint];
            let message = format!("etcd at {host} did not answer within {TO_CONNECT:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        };
        opened.unwrap_or_else(late).inspect_err(|_| self.note_failure(endpoint))
    }

    /// Connects to one endpoint, says who we are, and has it say its first word: a connection alone proves nothing.
    async fn greet(&self, endpoint: usize) -> Result<Opened> {
        let host = &self.0.endpoints[endpoint];
        let link = Link::dial(host, endpoint, self.0.tls.as_ref()).await?;
        let mut maintenance = MaintenanceClient::with_origin(link.channel(), link.origin());
        let status = match maintenance.status(StatusRequest {}).await {
            Ok(status) => status.into_inner(),
            Err(status) => return Err(self.of_greeting(host, status)),
        };
        let mut numbers = status.version.split('.').map(|number| number.parse().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST {
            let message = format!("this is etcd {}; locks need 3.4 or later", status.version);
            return Err(Error::new(ErrorKind::Config, message));
        }
        link.note_term(status.raft_term);
        let token = match self.0.asks {
            // It would have to ask the others who we are.
            Asks::Anybody if status.leader == 0 => None,
            _ => self.authenticate(&link).await?,
        };
        let header = status.header.unwrap_or_default();
        if self.current().cluster.is_some_and(|known| known != header.cluster_id) {
            let message = format!("etcd at {host} is of another cluster than before; name members of one");
            return Err(Error::new(ErrorKind::Config, message));
        }
        let (leads, led) = (header.member_id == status.leader, status.leader != 0);
        Ok(Opened {
            link,
            token,
            leads,
            led,
            cluster: header.cluster_id,
            behind: restored::behind(&status, &status),
        })
    }

    async fn authenticate(&self, link: &Link) -> Result<Option<MetadataValue<Ascii>>> {
        let Some(Login { user, password }) = &self.0.login else { return Ok(None) };
        let request = AuthenticateRequest { name: user.clone(), password: password.clone() };
        let mut auth = AuthClient::with_origin(link.channel(), link.origin());
        match auth.authenticate(request).await {
            Ok(answer) => {
                let token = answer.into_inner().token.parse();
                token.map(Some).map_err(|_| crate::error::unexpected("a token that no header can carry"))
            }
            // Nobody needs to say who they are here.
            Err(status) if status.message().contains("authentication is not enabled") => Ok(None),
            Err(status) => Err(Failure::from(status).into()),
        }
    }

    fn of_greeting(&self, host: &Host, status: Status) -> Error {
        let failure = Failure::from(status);
        if failure.why != Why::LinkLost {
            return failure.into();
        }
        let message = match self.0.tls {
            None => format!(
                "{host} hung up at the first word; if it wants TLS, write etcds:// instead of etcd://"
            ),
            Some(_) => format!("{host} hung up; if it wants a certificate of ours, give ?cert=FILE&key=FILE"),
        };
        Error::new(ErrorKind::Unavailable, message).caused_by(failure.error)
    }

    fn note_failure(&self, endpoint: usize) {
        self.current().failed[endpoint] = Some(Instant::now());
    }

    /// Has later calls go to another member if there is one. What is under way on `link` goes on.
    pub(crate) fn leave(&self, link: &Link) {
        self.note_failure(link.endpoint());
        let mut current = self.current();
        for seat in current.seats.values_mut() {
            seat.link.take_if(|seated| seated.is(link));
        }
        current.left.retain(|left| left.upgrade().is_some());
        current.left.push(link.downgrade());
    }

    /// Closes `link` if nothing has come over it since something was asked, and what other runtimes have to the same member if
    /// that was as silent: who only listens there would hear nothing for long. If something has come, it is only slow: another
    /// member may be quicker.
    pub(crate) fn suspect(&self, link: &Link, asked: Instant) {
        if link.is_silent_since(asked) {
            self.note_failure(link.endpoint());
            link.close();
            let current = self.current();
            let seated = current.seats.values().filter_map(|seat| seat.link.clone());
            for other in seated.chain(current.left.iter().filter_map(WeakLink::upgrade)) {
                if other.endpoint() == link.endpoint() && other.is_silent_since(asked) {
                    other.close();
                }
            }
        } else if self.0.endpoints.len() > 1 {
            self.leave(link);
        }
    }

    /// `message` with what every request carries: who we are, and that a member without a leader must not answer.
    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if self.0.asks == Asks::TheLed {
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        }
        if let Some(token) = &self.current().token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// Asks once, and waits for the answer as long as that may come.
    async fn once<Q, A, F>(&self, link: &Link, message: Q, limit: Duration, call: &F) -> Result<A, Failure>
    where
        F: AsyncFn(Channel, http::Uri, Request<Q>) -> Result<Response<A>, Status>,
    {
        let asked = Instant::now();
        let answer = pin!(call(link.channel(), link.origin(), self.request(message)));
        let answered = in_time(link, asked, limit, answer).await;
        match answered {
            Some(Ok(answer)) => Ok(answer.into_inner()),
            Some(Err(status)) => Err(Failure::from(status)),
            None => {
                if limit < TO_ANSWER && link.is_silent_since(asked) {
                    // Others have more patience, and may still be answered over it.
                    self.leave(link);
                } else {
                    self.suspect(link, asked);
                }
                Err(Failure::silence())
            }
        }
    }

    /// Asks, over another connection or again where that is allowed, until etcd answers or it has taken long enough.
    pub(crate) async fn call<Q, A, F>(&self, message: Q, repeat: Repeat, call: F) -> Result<A, Failure>
    where
        Q: Clone,
        F: AsyncFn(Channel, http::Uri, Request<Q>) -> Result<Response<A>, Status>,
    {
        self.ask(message, repeat, call).await.map(|(answer, _)| answer)
    }

    /// The same; tells also whether a request before the one that was answered may have been executed.
    pub(crate) async fn ask<Q, A, F>(&self, message: Q, repeat: Repeat, call: F) -> Result<(A, bool), Failure>
    where
        Q: Clone,
        F: AsyncFn(Channel, http::Uri, Request<Q>) -> Result<Response<A>, Status>,
    {
        let end = match repeat {
            Repeat::ByCaller(end) => end,
            Repeat::Yes | Repeat::No => Instant::now() + ALL_TOGETHER,
        };
        let (mut patience, mut perhaps) = (TO_REPEAT, false);
        loop {
            let link = self.link().await.map_err(Failure::unreachable)?;
            let limit = match repeat {
                Repeat::Yes => patience.min(end.saturating_duration_since(Instant::now())),
                Repeat::No => TO_ANSWER,
                Repeat::ByCaller(_) => TO_ELECT,
            };
            let failure = match self.once(&link, message.clone(), limit, &call).await {
                Ok(answer) => return Ok((answer, perhaps)),
                Err(failure) => failure,
            };
            self.react(&link, failure.why).await?;
            let allowed = failure.executed == Executed::No || repeat == Repeat::Yes;
            if !allowed || !failure.may_pass() || Instant::now() + PAUSE >= end {
                return Err(failure.under(&self.0.prefix));
            }
            perhaps |= failure.executed == Executed::Perhaps;
            // What is refused at once is asked again many times.
            patience = (patience * 2).min(ALL_TOGETHER);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Does what a failure asks for, so that the next request has better luck.
    pub(crate) async fn react(&self, link: &Link, why: Why) -> Result<(), Failure> {
        match why {
            Why::LinkLost => link.close(),
            Why::MemberUnfit => self.leave(link),
            Why::Token if self.0.login.is_some() => {
                let token = tokio::time::timeout(TO_CONNECT, self.authenticate(link)).await;
                let token = token.map_err(|_| Failure::silence())?.map_err(Failure::unreachable)?;
                self.current().token = token;
            }
            Why::Token | Why::Silence | Why::NoLease | Why::Compacted | Why::Full | Why::Refused => {}
        }
        Ok(())
    }

    /// Closes everything, for good.
    pub(crate) fn close(&self) {
        let mut current = self.current();
        current.closed = true;
        for link in current.seats.drain().filter_map(|(_, seat)| seat.link) {
            link.close();
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "these locks were closed; connect again")
}

/// Waits for an answer for as long as `limit` allows, or three times as long over a connection that is alive: who has much to do
/// is not helped by being asked again. Gives up once there was an election: what was on its way to the leader before it is
/// lost, and nobody says so.
async fn in_time<T>(
    link: &Link,
    asked: Instant,
    limit: Duration,
    mut answer: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    // Counted, not read from a clock: while this runtime stood still nothing could be heard.
    let (term, mut waited) = (link.term(), Duration::ZERO);
    while waited < limit * 3 && !(waited >= limit && link.is_silent_since(asked)) && link.term() == term {
        let slice = LOOK_EVERY.min(limit);
        if let Ok(answer) = tokio::time::timeout(slice, &mut answer).await {
            return Some(answer);
        }
        waited += slice;
        if link.may_ask_for_term(LOOK_EVERY) {
            tokio::select! {
                biased;
                answer = &mut answer => return Some(answer),
                _ = tokio::time::timeout(LOOK_EVERY, ask_for_term(link)) => {}
            }
        }
    }
    None
}

/// Asks a member for the term of the leader; it need not ask anybody else.
async fn ask_for_term(link: &Link) {
    let mut maintenance = MaintenanceClient::with_origin(link.channel(), link.origin());
    if let Ok(status) = maintenance.status(StatusRequest {}).await {
        link.note_term(status.into_inner().raft_term);
    }
}
