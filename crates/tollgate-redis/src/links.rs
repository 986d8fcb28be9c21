//! Connections: one for each runtime that uses this client.
//!
//! A connection is driven by a task on the runtime that opened it. Callers use their own, which spares a wake of
//! another thread; renewals and everything in the background use the keeper's, which no caller can block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, PushInfo, PushKind, ScriptInvocation};
use tokio::runtime::{Handle, Id};
use tollgate_core::{Error, ErrorKind, Result};

use crate::error::{of_connect, of_request};
use crate::inbox::Inbox;

/// How long Redis may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections of one client.
pub(crate) struct Links {
    client: Client,
    channel: String,
    inbox: Arc<Inbox>,
    by_runtime: Mutex<HashMap<Id, Arc<Seat>>>,
}

/// Where a runtime's connection is, or will be.
#[derive(Default)]
struct Seat {
    link: tokio::sync::Mutex<Option<Link>>,
}

/// An open connection.
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    /// By which Redis knows it.
    id: u64,
    /// It was closed from the other side.
    closed: Arc<AtomicBool>,
    runtime: Id,
}

impl Links {
    pub(crate) fn new(client: Client, channel: String, inbox: Arc<Inbox>) -> Self {
        Self { client, channel, inbox, by_runtime: Mutex::default() }
    }

    /// This runtime's connection.
    pub(crate) async fn here(&self) -> Result<Link> {
        let runtime = Handle::current().id();
        let seat = self.seats().entry(runtime).or_default().clone();
        let mut link = seat.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.closed.load(Ordering::Acquire)) {
            return Ok(link.clone());
        }
        let opened = self.within(self.open(runtime)).await.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Unavailable, format!("Redis did not answer within {PATIENCE:?}")))
        })?;
        Ok(link.insert(opened).clone())
    }

    async fn open(&self, runtime: Id) -> Result<Link> {
        let closed = Arc::new(AtomicBool::new(false));
        let (inbox, closes) = (self.inbox.clone(), closed.clone());
        let receive = move |push: PushInfo| -> std::result::Result<(), ()> {
            if push.kind == PushKind::Disconnection {
                closes.store(true, Ordering::Release);
                inbox.lose();
            }
            inbox.receive(&push);
            Ok(())
        };
        // The patience is ours, around every request: the driver's own would not close a dead connection.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(None)
            .set_push_sender(receive);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connected.map_err(of_connect)?;
        let id = Cmd::new().arg("CLIENT").arg("ID").query_async(&mut connection).await.map_err(of_connect)?;
        connection.subscribe(&self.channel).await.map_err(of_connect)?;
        // Whether messages arrive is found out by one of our own.
        let mut probe = Cmd::new();
        probe.arg("PUBLISH").arg(&self.channel).arg("probe");
        let _: u64 = probe.query_async(&mut connection).await.map_err(of_connect)?;
        Ok(Link { connection, id, closed, runtime })
    }

    /// Runs a script over `link`. A connection that fails is not used again.
    pub(crate) async fn invoke<T: FromRedisValue + Send>(
        &self,
        link: &Link,
        script: &ScriptInvocation<'_>,
    ) -> Result<T> {
        let mut connection = link.connection.clone();
        let answer = self
            .within(Box::pin(async move { script.invoke_async(&mut connection).await.map_err(of_request) }));
        self.judged(link, answer.await).await
    }

    /// As [`invoke`](Self::invoke), for a plain command.
    pub(crate) async fn command<T: FromRedisValue + Send>(&self, link: &Link, command: &Cmd) -> Result<T> {
        let mut connection = link.connection.clone();
        let answer = self.within(command.query_async(&mut connection)).await;
        self.judged(link, answer.map(|answer| answer.map_err(of_request))).await
    }

    async fn judged<T>(&self, link: &Link, answer: Option<Result<T>>) -> Result<T> {
        let answer = answer.unwrap_or_else(|| {
            let message = format!("Redis did not answer within {PATIENCE:?}; it may act all the same");
            Err(Error::new(ErrorKind::Indeterminate, message))
        });
        if let Err(error) = &answer
            && matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable)
        {
            self.discard(link).await;
        }
        answer
    }

    /// Makes sure that Redis executes nothing more of what was sent over `link`.
    pub(crate) async fn cut(&self, link: &Link) -> Result<()> {
        self.discard(link).await;
        let here = self.here().await?;
        let mut kill = Cmd::new();
        kill.arg("CLIENT").arg("KILL").arg("ID").arg(link.id);
        self.command::<u64>(&here, &kill).await.map(drop)
    }

    /// The next one who asks opens another.
    async fn discard(&self, link: &Link) {
        let seat = self.seats().get(&link.runtime).cloned();
        if let Some(seat) = seat {
            let mut seated = seat.link.lock().await;
            if seated.as_ref().is_some_and(|seated| seated.id == link.id) {
                *seated = None;
            }
        }
    }

    /// On this runtime's own timers: the keeper's would wake its thread for every request.
    async fn within<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        // The answer first: after a stop it and the end of our patience are there together.
        tokio::time::timeout(PATIENCE, work).await.ok()
    }

    /// Closes everything.
    pub(crate) fn close(&self) {
        self.seats().clear();
    }

    fn seats(&self) -> std::sync::MutexGuard<'_, HashMap<Id, Arc<Seat>>> {
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
