//! Connections to the server: one for each runtime that uses this client.
//!
//! A connection is driven by a task on the runtime that opened it. Callers use their own, which
//! spares a wake of another thread; renewals and everything in the background use the keeper's,
//! which no caller can block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Handle, Id};
use tokio::sync::broadcast;
use tollgate_core::{Clock, Error, ErrorKind, OwnerId, Result};
use tollgate_proto::frame::{self, Call, Hello, Lane, MAGIC, Reply, VERSION, Welcome};

use crate::address::Socket;
use crate::calls::Calls;
use crate::config::Address;
use crate::driver::drive;
use crate::error::{is_full, not_a_server, refused, unreachable};
use crate::link::{Link, Shared};

/// How long it may take to connect.
const TO_CONNECT: Duration = Duration::from_secs(5);
/// As many revocations may wait to be passed on; of more the next renewals tell.
const REVOKED_AT_ONCE: usize = 1024;

/// The connections of one client.
pub(crate) struct Links {
    servers: Vec<Address>,
    /// The server that was connected to last: the next attempt begins with it.
    server: AtomicUsize,
    /// By which the server knows this client.
    client: u128,
    clock: Arc<dyn Clock>,
    /// The runtime of renewals.
    keeper: Id,
    by_runtime: Mutex<HashMap<Id, Seat>>,
    revoked: broadcast::Sender<OwnerId>,
}

/// The connection of a runtime, or the attempt to open it.
#[derive(Default)]
struct Seat {
    link: Option<Link>,
    /// Held during an attempt, so that concurrent callers share it.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// When the last attempt failed, and how: callers that waited for it do not each try again.
    failed: Option<(Instant, ErrorKind, String)>,
}

impl Links {
    pub(crate) fn new(servers: Vec<Address>, clock: Arc<dyn Clock>, keeper: Id) -> Self {
        Self {
            servers,
            server: AtomicUsize::new(0),
            client: OwnerId::random().to_bits(),
            clock,
            keeper,
            by_runtime: Mutex::default(),
            revoked: broadcast::Sender::new(REVOKED_AT_ONCE),
        }
    }

    /// The connection of the current runtime.
    pub(crate) async fn link(&self) -> Result<Link> {
        let runtime = Handle::try_current().map_err(no_runtime)?.id();
        match self.open_link(runtime) {
            Some(link) => Ok(link),
            None => Box::pin(self.connect(runtime)).await,
        }
    }

    /// Grants of this client that are revoked, from now on.
    pub(crate) fn revoked(&self) -> broadcast::Receiver<OwnerId> {
        self.revoked.subscribe()
    }

    pub(crate) fn now(&self) -> tollgate_core::Moment {
        self.clock.now()
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.seats().clear();
    }

    fn open_link(&self, runtime: Id) -> Option<Link> {
        self.seats().get(&runtime)?.link.as_ref().filter(|link| !link.is_closed()).cloned()
    }

    /// Opens the connection of `runtime`, the current one. Concurrent callers share one attempt.
    async fn connect(&self, runtime: Id) -> Result<Link> {
        let came = Instant::now();
        let opening = self.seats().entry(runtime).or_default().opening.clone();
        let _alone = opening.lock().await;
        if let Some(link) = self.open_link(runtime) {
            return Ok(link);
        }
        if let Some((at, kind, message)) = self.seats().entry(runtime).or_default().failed.clone()
            && at > came
        {
            return Err(Error::new(kind, message));
        }
        let opened = self.open(runtime).await;
        let mut seats = self.seats();
        if opened.as_ref().is_err_and(is_full) {
            // A holder whose keeper finds no room must not lose its lock while its program has
            // other connections.
            let links = seats.values().filter_map(|seat| seat.link.as_ref());
            if let Some(link) = links.into_iter().find(|link| !link.is_closed()) {
                return Ok(link.clone());
            }
        }
        let opened = opened.inspect_err(|error| {
            let failed = (Instant::now(), error.kind(), error.to_string());
            seats.entry(runtime).or_default().failed = Some(failed);
        })?;
        // Runtimes that are gone took their connections with them.
        seats.retain(|id, seat| *id == runtime || seat.link.as_ref().is_some_and(|link| !link.is_closed()));
        seats.entry(runtime).or_default().link = Some(opened.clone());
        Ok(opened)
    }

    /// Tries the servers in turn, from the last one that answered on.
    async fn open(&self, runtime: Id) -> Result<Link> {
        let count = self.servers.len();
        let first = self.server.load(Ordering::Relaxed);
        let mut failed = None;
        for at in (first..first + count).map(|at| at % count) {
            let patience = TO_CONNECT / u32::try_from(count).unwrap_or(u32::MAX);
            let opened = tokio::time::timeout(patience, self.open_at(&self.servers[at], runtime)).await;
            match opened {
                Ok(Ok(link)) => {
                    self.server.store(at, Ordering::Relaxed);
                    return Ok(link);
                }
                Ok(Err(error)) => failed = Some(error),
                Err(_) => {
                    let what = format!("{} did not answer within {patience:?}", self.servers[at]);
                    failed = Some(unreachable(&what).of_overload());
                }
            }
        }
        Err(failed.unwrap_or_else(|| unreachable("the URL names no address")))
    }

    async fn open_at(&self, address: &Address, runtime: Id) -> Result<Link> {
        let mut socket =
            address.connect().await.map_err(|error| unreachable(&address.to_string()).caused_by(error))?;
        let lane = if runtime == self.keeper { Lane::Keeper } else { Lane::Caller };
        let hello = Hello { version: VERSION, client: self.client, lane };
        let (welcome, rest) = greet(&mut *socket, hello).await?;
        let calls = Calls::new(self.revoked.clone());
        let shared = Arc::new(Shared::new(calls, self.clock.clone(), welcome));
        tokio::spawn(drive(socket, rest, shared.clone()));
        Ok(Link::new(shared))
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<Id, Seat>> {
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_runtime(error: tokio::runtime::TryCurrentError) -> Error {
    Error::invalid("no Tokio runtime runs on this thread, and the lock server's client needs one")
        .caused_by(error)
}

/// Introduces this client. What the server said of itself, and what was read behind that.
async fn greet(socket: &mut dyn Socket, hello: Hello) -> Result<(Welcome, Vec<u8>)> {
    let broken = |error: std::io::Error| unreachable("the connection was closed").caused_by(error);
    let mut frame = MAGIC.to_vec();
    Call::Hello(hello).write(1, &mut frame);
    socket.write_all(&frame).await.map_err(broken)?;
    let mut arrived = Vec::with_capacity(256);
    let length = loop {
        if let Some(length) = frame::first(&arrived).map_err(|_| not_a_server())? {
            break length;
        }
        if socket.read_buf(&mut arrived).await.map_err(broken)? == 0 {
            return Err(unreachable("the connection was closed before the server had answered"));
        }
    };
    let rest = arrived.split_off(length);
    match Reply::read(&arrived).map_err(|_| not_a_server())? {
        (_, Reply::Welcome(welcome)) => Ok((welcome, rest)),
        (_, Reply::Refused(refusal)) => Err(refused(refusal)),
        (_, Reply::Stopping) => Err(unreachable("the server is stopping")),
        _ => Err(not_a_server()),
    }
}
