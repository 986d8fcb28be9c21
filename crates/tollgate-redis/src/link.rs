//! One open connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind as Kind, RedisError, ServerErrorKind, Value};
use tokio::task::AbortHandle;

use crate::pulse::Pulse;
use crate::script::Request;
use crate::server_clock::ServerClock;
use crate::wire::{Tap, Wire};

/// After how long without anything coming back a connection is asked whether it lives.
const SILENCE: Duration = Duration::from_secs(1);
/// How long it may take to answer that.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long answers that are already here may take to be read, after this process was stopped.
const GRACE: Duration = Duration::from_millis(100);

/// An open connection. Clones are the same one; it is closed when the last is dropped.
#[derive(Clone)]
pub(crate) struct Link(Arc<Open>);

/// What is known of it.
struct Open {
    wire: Wire,
    identity: Identity,
    watcher: AbortHandle,
}

/// Who is on the other side.
pub(crate) struct Identity {
    /// Where it is.
    pub(crate) server: Arc<str>,
    /// By which the server knows this connection.
    pub(crate) id: u64,
    /// Which run of the server it is; `None` if this user may not know.
    pub(crate) run_id: Option<String>,
    /// What its clock says.
    pub(crate) clock: ServerClock,
    /// Whether it was a primary when it was last heard of: sentinels or a cluster say so, or it wrote for us.
    pub(crate) was_primary: Arc<AtomicBool>,
}

impl Link {
    /// A connection of the current runtime.
    pub(crate) fn new(wire: Wire, identity: Identity) -> Self {
        let watched = watch_over(wire.tap().clone(), wire.pulse().clone(), wire.connection());
        let watcher = tokio::spawn(watched).abort_handle();
        Self(Arc::new(Open { wire, identity, watcher }))
    }

    /// Runs a script. Redis says if it does not know it, and has not run it then.
    pub(crate) async fn run(&self, request: &Request) -> Result<Value, RedisError> {
        match self.command(request.by_hash()).await {
            Err(error) if error.kind() == Kind::Server(ServerErrorKind::NoScript) => {
                Box::pin(async { self.command(&request.with_text()).await }).await
            }
            answer => answer,
        }
    }

    /// The same on a server that has only begun to take the key over from another.
    pub(crate) async fn run_asking(&self, request: &Request) -> Result<Value, RedisError> {
        let mut asking = Cmd::new();
        asking.arg("ASKING");
        let mut answers = self.commands(vec![asking, request.with_text()]).await?;
        answers.pop().unwrap_or_default().extract_error()
    }

    /// Sends commands in one go, and waits for what each is answered: a value or an error of its own.
    pub(crate) async fn commands(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        self.0.wire.commands(commands).await
    }

    /// Sends one command and waits for its answer, as long as the connection lives.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.0.wire.command(command).await
    }

    /// Whether nothing can be sent over it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.wire.is_closed()
    }

    /// Closes it for everybody.
    pub(crate) fn close(&self) {
        self.0.wire.tap().close();
    }

    /// The server's clock, as far as it is known here.
    pub(crate) fn clock(&self) -> &ServerClock {
        &self.0.identity.clock
    }

    /// Whether the server was a primary when it was last heard of.
    pub(crate) fn was_primary(&self) -> bool {
        self.0.identity.was_primary.load(Ordering::Relaxed)
    }

    /// The server has written for us, so it is a primary.
    pub(crate) fn has_written(&self) {
        if !self.was_primary() {
            self.0.identity.was_primary.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.0.identity.server
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.identity.id
    }

    /// Whether both go to one run of one server, as far as this user may know.
    pub(crate) fn is_in_the_run_of(&self, other: &Self) -> bool {
        self.run_id().is_some() && self.run_id() == other.run_id() && self.server() == other.server()
    }

    /// Which run of the server it goes to; `None` if this user may not know.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.0.identity.run_id.as_deref()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// Closes a connection that is owed answers and gets none: the driver would wait for ever, and a timer for each
/// request would cost more than the request.
async fn watch_over(tap: Tap, pulse: Arc<Pulse>, connection: MultiplexedConnection) {
    loop {
        pulse.busy().await;
        let before = pulse.reads();
        tokio::time::sleep(SILENCE).await;
        // Whoever asked may have gone, or be busy elsewhere with the answer in hand: so it is asked once more.
        if pulse.unanswered() > 0 && pulse.reads() == before && !answers(&connection, &pulse).await {
            return tap.close();
        }
    }
}

async fn answers(connection: &MultiplexedConnection, pulse: &Pulse) -> bool {
    let before = pulse.reads();
    let mut connection = connection.clone();
    let mut ping = Cmd::new();
    ping.arg("PING");
    let answered = tokio::time::timeout(PATIENCE, connection.send_packed_command(&ping)).await;
    if answered.is_err() {
        tokio::time::sleep(GRACE).await;
    }
    matches!(answered, Ok(Ok(_))) || pulse.reads() != before
}
