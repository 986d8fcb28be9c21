//! One session, over one connection after the other.
//!
//! A task keeps it connected as long as somebody has a hand on the client, and closes it when the last one lets go.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::Moment;

use super::dial::{Dialer, Met, Refusal};
use super::fault::Fault;
use super::link::Link;
use super::ops::{Hello, Request, answer};

/// Between two attempts to find a server, at first and at last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How long the end of a session may take.
const TO_CLOSE: Duration = Duration::from_secs(1);
/// How soon a connection that is silent is given up for another, at most.
pub(crate) const SILENT: Duration = Duration::from_secs(4);

/// A session's client. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Client(Arc<Hand>);

/// The last hand closes the session.
#[derive(Debug)]
struct Hand {
    session: i64,
    status: watch::Receiver<Status>,
    order: watch::Sender<Order>,
}

/// How the session is connected.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    /// The number of the present connection, or of the last.
    pub(crate) number: u64,
    /// The present connection.
    pub(crate) link: Option<Arc<Link>>,
    /// When the server was asked to let the session go on over it.
    pub(crate) asked: Moment,
    /// How long the session lives without being heard of, as this server has it.
    pub(crate) timeout: Duration,
    pub(crate) has_ended: bool,
}

/// What the task is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    GoOn,
    /// End the session.
    Close,
    /// Let it be: it ends by itself.
    HangUp,
}

/// What the task has.
struct Connected {
    dialer: Dialer,
    hello: Hello,
    seen: Arc<AtomicI64>,
    status: watch::Sender<Status>,
    order: watch::Receiver<Order>,
}

/// How soon a silent connection of a session that lives for `ttl` is given up.
fn patience(ttl: Duration) -> Duration {
    (ttl / 5).min(SILENT)
}

impl Client {
    /// Has one of the servers make a session. What keeps it is a task of the runtime that this runs on.
    pub(crate) async fn open(mut dialer: Dialer, timeout: Duration) -> Result<Self, (Dialer, Refusal)> {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let mut hello = Hello { seen: 0, timeout_ms, session: 0, password: vec![0; 16] };
        let met = match dialer.dial(&hello).await {
            Ok(met) => met,
            Err(refusal) => return Err((dialer, refusal)),
        };
        let session = met.welcome.session;
        (hello.session, hello.password) = (session, met.welcome.password.clone());
        let seen = Arc::new(AtomicI64::new(0));
        let link = Arc::new(Link::new(1, &met.carrier, seen.clone()));
        let status = Status::up(link.clone(), &met);
        // A session that is there has no time to lose.
        dialer.hurry(patience(status.timeout));
        let (status, watched) = watch::channel(status);
        let (order, ordered) = watch::channel(Order::GoOn);
        let connected = Connected { dialer, hello, seen, status, order: ordered };
        tokio::spawn(connected.keep(link, met));
        Ok(Self(Arc::new(Hand { session, status: watched, order })))
    }

    /// The session's number.
    pub(crate) fn session(&self) -> i64 {
        self.0.session
    }

    /// How it is connected, and what becomes of that.
    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.0.status.clone()
    }

    /// The present connection.
    pub(crate) fn link(&self) -> Result<Arc<Link>, Fault> {
        self.0.status.borrow().link()
    }

    /// Waits for a connection, if there is one but the one with the number `not`.
    pub(crate) async fn next_link(&self, not: u64) -> Result<Arc<Link>, Fault> {
        let is_next =
            |status: &Status| status.has_ended || status.link.as_ref().is_some_and(|link| link.number != not);
        match self.status().wait_for(is_next).await {
            Ok(status) => status.link(),
            Err(_) => Err(Fault::Ended),
        }
    }

    /// Ends the session, and everything that hangs on it.
    pub(crate) fn close(&self) {
        self.0.give(Order::Close);
    }

    /// Leaves the session to end by itself.
    pub(crate) fn hang_up(&self) {
        self.0.give(Order::HangUp);
    }
}

impl Hand {
    /// The first order counts.
    fn give(&self, order: Order) {
        self.order.send_if_modified(|given| {
            let first = *given == Order::GoOn;
            if first {
                *given = order;
            }
            first
        });
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.give(Order::Close);
    }
}

impl Status {
    fn up(link: Arc<Link>, met: &Met) -> Self {
        let timeout = Duration::from_millis(met.welcome.timeout_ms.into());
        Self { number: link.number, link: Some(link), asked: met.asked, timeout, has_ended: false }
    }

    fn link(&self) -> Result<Arc<Link>, Fault> {
        match &self.link {
            _ if self.has_ended => Err(Fault::Ended),
            Some(link) => Ok(link.clone()),
            None => Err(Fault::Unsent),
        }
    }
}

impl Connected {
    async fn keep(mut self, mut link: Arc<Link>, mut met: Met) {
        loop {
            let silence = patience(Duration::from_millis(met.welcome.timeout_ms.into()));
            tokio::select! {
                () = link.run(met.carrier, silence) => {}
                () = goodbye(&mut self.order, &link) => break,
            }
            self.status.send_modify(|status| status.link = None);
            let mut order = self.order.clone();
            let found = tokio::select! {
                found = self.reconnect() => found,
                _ = order.wait_for(|order| *order != Order::GoOn) => break,
            };
            let Some(found) = found else { break };
            met = found;
            link = Arc::new(Link::new(link.number + 1, &met.carrier, self.seen.clone()));
            self.status.send_replace(Status::up(link.clone(), &met));
        }
        self.status.send_modify(|status| {
            status.link = None;
            status.has_ended = true;
        });
    }

    /// Looks for a server where the session goes on; none if it is over.
    async fn reconnect(&mut self) -> Option<Met> {
        let mut pause = PAUSES.0;
        loop {
            self.hello.seen = self.seen.load(Ordering::Acquire);
            match self.dialer.dial(&self.hello).await {
                Ok(met) if met.welcome.session == self.hello.session => return Some(met),
                // A server that gives us another session has not understood.
                Ok(_) | Err(Refusal::Nobody(_)) => {}
                Err(Refusal::Expired | Refusal::Denied) => return None,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

/// Completes when the session is not to go on, and was told so if it is to be closed.
async fn goodbye(order: &mut watch::Receiver<Order>, link: &Link) {
    let close = match order.wait_for(|order| *order != Order::GoOn).await {
        Ok(order) => *order == Order::Close,
        // Nobody can want anything any more.
        Err(_) => true,
    };
    if close && let Ok(asked) = link.ask(Request::close()) {
        let _ = tokio::time::timeout(TO_CLOSE, asked.read(answer::nothing)).await;
    }
}
