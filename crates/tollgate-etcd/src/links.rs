//! The way to etcd: the connection that is used now, what replaces it (`greet.rs`), and how something is asked over it.
//!
//! A connection is driven by a task on the runtime that opened it. Callers use their own, which spares two wakes of another
//! thread for each request; sessions, watches and everything in the background use the keeper's, which no caller can block.

mod greet;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};
use tollgate_core::tls;
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Keeper, Result};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Response, Status};

use self::greet::Opened;
use crate::channel::Channel;
use crate::config::{EtcdConfig, Login};
use crate::error::{Executed, Failure, Why};
use crate::link::{Link, WeakLink};
use crate::patience::{Patience, in_time};

/// What is spoken inside of an encrypted connection; etcd has nothing else.
const HTTP2: &str = "h2";
/// How long a member may take to be connected to and to say its first word.
const TO_CONNECT: Duration = Duration::from_secs(3);
/// How long a request may take that cannot be repeated: longer than an election.
const TO_ANSWER: Duration = Duration::from_secs(3);
/// The same over a connection that is alive: etcd itself gives up before that.
const TO_ANSWER_SLOWLY: Duration = Duration::from_secs(9);
/// How long an acquire may take without a word before another copy of it is sent: about an election.
const TO_ELECT: Duration = Duration::from_secs(1);
/// How long one that can be repeated may take before it is, for the first time; then twice that, and so on.
const TO_REPEAT: Duration = Duration::from_millis(500);
/// How long all repetitions may take.
const ALL_TOGETHER: Duration = Duration::from_secs(8);
/// Between two attempts, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// The way to etcd. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Links(Arc<Inner>);

struct Inner {
    endpoints: Vec<Host>,
    login: Option<Login>,
    tls: Option<Arc<rustls::ClientConfig>>,
    keeper: Keeper,
    asks: Asks,
    /// Whether we have a certificate of our own.
    has_certificate: bool,
    prefix: String,
    /// Whoever says who we are holds it.
    logging_in: tokio::sync::Mutex<()>,
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
            has_certificate: config.tls.as_ref().is_some_and(|files| files.cert.is_some()),
            prefix: config.prefix.clone(),
            logging_in: tokio::sync::Mutex::default(),
            current: Mutex::new(Current { failed, ..Current::default() }),
        })))
    }

    /// How far the log of the member that answered last is behind its data: it was restored from a backup.
    pub(crate) fn behind(&self) -> u64 {
        self.current().behind
    }

    /// What the keys of locks start with.
    pub(crate) fn prefix(&self) -> &str {
        &self.0.prefix
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
        // In a task: whoever waits for it may give up at any time, or not be polled, and the next one finds it then.
        let (links, came) = (self.clone(), Instant::now());
        let opened = tokio::spawn(async move { links.open_alone(runtime, came).await }).await;
        opened.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Unavailable, "the task that connects did not finish; try again")
                .caused_by(error))
        })
    }

    /// Opens a connection unless somebody else has, or could not, since `came`.
    async fn open_alone(&self, runtime: Id, came: Instant) -> Result<Link> {
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
        self.open_for(runtime).await
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
    async fn once<Q, A, F>(&self, link: &Link, message: Q, patience: Patience, call: &F) -> Result<A, Failure>
    where
        F: AsyncFn(Channel, http::Uri, Request<Q>) -> Result<Response<A>, Status>,
    {
        let asked = Instant::now();
        let answer = pin!(call(link.channel(), link.origin(), self.request(message)));
        let answered = in_time(link, asked, patience, answer).await;
        match answered {
            Some(Ok(answer)) => Ok(answer.into_inner()),
            Some(Err(status)) => Err(Failure::from(status)),
            None => {
                if patience.silent < TO_ANSWER && link.is_silent_since(asked) {
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
        let (mut limit, mut pause, mut perhaps) = (TO_REPEAT, PAUSE.0, false);
        loop {
            let link = self.link().await.map_err(Failure::unreachable)?;
            let patience = match repeat {
                Repeat::Yes => {
                    let silent = limit.min(end.saturating_duration_since(Instant::now()));
                    Patience { silent, alive: silent * 3, until_elected: true }
                }
                Repeat::No => Patience { silent: TO_ANSWER, alive: TO_ANSWER_SLOWLY, until_elected: false },
                Repeat::ByCaller(_) => {
                    Patience { silent: TO_ELECT, alive: TO_ANSWER_SLOWLY, until_elected: true }
                }
            };
            let failure = match self.once(&link, message.clone(), patience, &call).await {
                Ok(answer) => return Ok((answer, perhaps)),
                Err(failure) => failure,
            };
            self.react(&link, failure.why).await?;
            let allowed = failure.executed == Executed::No || repeat == Repeat::Yes;
            if !allowed || !failure.may_pass() || Instant::now() + pause >= end {
                return Err(failure.under(&self.0.prefix));
            }
            perhaps |= failure.executed == Executed::Perhaps;
            tokio::time::sleep(pause).await;
            // What is refused at once is asked again many times.
            (limit, pause) = ((limit * 2).min(ALL_TOGETHER), (pause * 2).min(PAUSE.1));
        }
    }

    /// Does what a failure asks for, so that the next request has better luck.
    pub(crate) async fn react(&self, link: &Link, why: Why) -> Result<(), Failure> {
        match why {
            Why::LinkLost => link.close(),
            Why::MemberUnfit => self.leave(link),
            Why::Token if self.0.login.is_some() => {
                let before = self.current().token.clone();
                let links = self.clone();
                // On the keeper: others wait for it, and whoever asked may be stopped, or not be polled.
                let login = self.0.keeper.spawn(async move { links.log_in_again(before).await });
                login.await.unwrap_or_else(|_| Err(Failure::silence()))?;
            }
            Why::Token
            | Why::Silence
            | Why::Busy
            | Why::NoLease
            | Why::Compacted
            | Why::Full
            | Why::Refused => {}
        }
        Ok(())
    }

    /// Gets another token than `before`, if nobody else has. It costs etcd much to check a password.
    async fn log_in_again(&self, before: Option<MetadataValue<Ascii>>) -> Result<(), Failure> {
        let link = self.link().await.map_err(Failure::unreachable)?;
        let _alone = self.0.logging_in.lock().await;
        if self.current().token != before {
            return Ok(());
        }
        let token = tokio::time::timeout(TO_CONNECT, self.authenticate(&link)).await;
        let token = token.map_err(|_| Failure::silence())?.map_err(Failure::unreachable)?;
        self.current().token = token;
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
    Error::new(ErrorKind::Unavailable, "this client was closed; connect again")
}
