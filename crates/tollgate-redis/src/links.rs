//! Connections to one server: one for each runtime that uses this client.
//!
//! A connection is driven by a task on the runtime that opened it. Callers use their own, which spares a wake of
//! another thread; renewals and everything in the background use the keeper's, which no caller can block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, Value};
use tokio::runtime::{Handle, Id};
use tollgate_core::inbox::Inbox;
use tollgate_core::{Clock, Error, ErrorKind, Result};

use crate::endpoint::{Endpoint, Target};
use crate::error::{of_connect, of_former_primary, of_request, too_old};
use crate::link::{Identity, Link};
use crate::pulse::Pulse;
use crate::server_clock::ServerClock;
use crate::wire::{End, SHORT, Wire};

/// How long it may take to connect.
pub(crate) const TO_CONNECT: Duration = Duration::from_secs(5);
/// Requests that may wait to be written: as many tasks may ask at once without waiting for each other.
const BUFFERED: usize = 4096;
/// The oldest Redis that has what scripts use (`ZADD` with `GT`).
pub(crate) const OLDEST: (u32, u32) = (6, 2);

/// The connections of one client to one server.
pub(crate) struct Links {
    target: Target,
    subscription: Option<Subscription>,
    clock: Arc<dyn Clock>,
    by_runtime: Mutex<HashMap<Id, Seat>>,
    /// Whether a primary is there, for all we know. Connections come and go, and this stays.
    was_primary: Arc<AtomicBool>,
}

/// What every connection listens to.
#[derive(Clone)]
pub(crate) struct Subscription {
    pub(crate) channel: Arc<str>,
    pub(crate) inbox: Arc<Inbox>,
}

/// Where a runtime's connection is, or will be.
#[derive(Default)]
struct Seat {
    link: Option<Link>,
    /// Whoever opens one holds it.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// When it last could not be opened, and why: those who waited for it need not try again one after the other.
    failed: Option<(Instant, ErrorKind, String)>,
}

impl Links {
    pub(crate) fn new(target: Target, subscription: Option<Subscription>, clock: Arc<dyn Clock>) -> Self {
        let was_primary = Arc::new(AtomicBool::new(!matches!(target, Target::Fixed(_))));
        Self { target, subscription, clock, by_runtime: Mutex::default(), was_primary }
    }

    /// This runtime's connection.
    pub(crate) async fn here(&self) -> Result<Link> {
        let runtime = Handle::current().id();
        match self.seated(runtime) {
            Some(link) => Ok(link),
            None => Box::pin(self.connected(runtime)).await,
        }
    }

    /// A connection of `runtime`, which is this one, that is opened by one of those who want it.
    async fn connected(&self, runtime: Id) -> Result<Link> {
        let came = Instant::now();
        let opening = self.seats().entry(runtime).or_default().opening.clone();
        let _alone = opening.lock().await;
        if let Some(link) = self.seated(runtime) {
            return Ok(link);
        }
        if let Some((at, kind, message)) = self.seats().entry(runtime).or_default().failed.clone()
            && at > came
        {
            return Err(Error::new(kind, message));
        }
        let opened = tokio::time::timeout(TO_CONNECT, self.open()).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("Redis did not answer within {TO_CONNECT:?}")))
        });
        let opened = opened.map_err(|error| match self.was_primary.load(Ordering::Relaxed) {
            true => of_former_primary(error),
            false => error,
        });
        let mut seats = self.seats();
        let opened = opened.inspect_err(|error| {
            let failed = (Instant::now(), error.kind(), error.to_string());
            seats.entry(runtime).or_default().failed = Some(failed);
        })?;
        // Runtimes that are gone took their connections with them.
        seats.retain(|id, seat| *id == runtime || seat.link.as_ref().is_some_and(|link| !link.is_closed()));
        seats.entry(runtime).or_default().link = Some(opened.clone());
        Ok(opened)
    }

    fn seated(&self, runtime: Id) -> Option<Link> {
        self.seats().get(&runtime)?.link.as_ref().filter(|link| !link.is_closed()).cloned()
    }

    async fn open(&self) -> Result<Link> {
        let endpoint = self.target.endpoint().await?;
        let listener = self.subscription.as_ref().map(|subscription| subscription.inbox.clone());
        let end = Arc::new(End::heard_by(listener.clone()));
        let mut config = AsyncConnectionConfig::new().set_pipeline_buffer_size(BUFFERED);
        let pulse = Arc::new(Pulse::default());
        if let Some(inbox) = listener {
            let (end, pulse) = (end.clone(), pulse.clone());
            config = config.set_push_sender(move |push: PushInfo| -> std::result::Result<(), ()> {
                pulse.pushed();
                if push.kind == PushKind::Disconnection {
                    end.come();
                }
                if let (PushKind::Message, Some(Value::BulkString(message))) = (&push.kind, push.data.last())
                {
                    inbox.receive(message);
                }
                Ok(())
            });
        }
        let wire = Wire::open(&endpoint, config.set_response_timeout(None), end, pulse, SHORT).await?;
        let mut connection = wire.connection();
        let run_id = introduced(&mut connection, &endpoint).await?;
        let mut who = redis::pipe();
        // The script does nothing: whoever may not run it could take locks and never give them back.
        who.cmd("CLIENT").arg("ID").cmd("TIME").cmd("EVAL").arg("return 1").arg(0).ignore();
        let (id, time): (u64, (u64, u64)) = who.query_async(&mut connection).await.map_err(of_connect)?;
        let clock = ServerClock::new(time.0 * 1_000_000 + time.1, self.clock.now());
        if let Some(Subscription { channel, .. }) = &self.subscription {
            connection.subscribe(&**channel).await.map_err(of_connect)?;
            // Whether messages arrive is found out by one of our own.
            let mut probe = Cmd::new();
            probe.arg("PUBLISH").arg(&**channel).arg("probe");
            let _: u64 = probe.query_async(&mut connection).await.map_err(of_connect)?;
        }
        let server = Arc::from(endpoint.address());
        let was_primary = self.was_primary.clone();
        Ok(Link::new(wire, Identity { server, id, run_id, clock, was_primary }))
    }

    /// Sends a plain command over this runtime's connection.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value> {
        let link = self.here().await?;
        link.command(command).await.map_err(|error| of_request(error, &link))
    }

    /// Makes sure that Redis executes nothing more of what was sent over `link`.
    pub(crate) async fn cut(&self, link: &Link) -> Result<()> {
        link.close();
        let here = self.here().await?;
        if here.server() != link.server() || here.run_id() != link.run_id() {
            // It ended with that server's run, and its number may be somebody else's by now.
            return Ok(());
        }
        let mut kill = Cmd::new();
        kill.arg("CLIENT").arg("KILL").arg("ID").arg(link.id());
        here.command(&kill).await.map(drop).map_err(|error| of_request(error, &here))
    }

    /// Closes everything.
    pub(crate) fn close(&self) {
        self.seats().clear();
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<Id, Seat>> {
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the server says of itself: its run id. Refuses one that is too old, and one that has no keys.
async fn introduced(connection: &mut MultiplexedConnection, at: &Endpoint) -> Result<Option<String>> {
    let mut info = Cmd::new();
    let answer: std::result::Result<String, _> = info.arg("INFO").arg("server").query_async(connection).await;
    let about = match answer {
        Ok(about) => about,
        // A user who may not ask can still take locks.
        Err(error) if error.code() == Some("NOPERM") => return Ok(None),
        Err(error) => return Err(of_connect(error)),
    };
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let version = field("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    if !version.is_empty() && (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST {
        return Err(too_old(version));
    }
    if field("redis_mode") == Some("sentinel") {
        return Err(at.of_sentinel());
    }
    Ok(field("run_id").map(str::to_owned))
}
