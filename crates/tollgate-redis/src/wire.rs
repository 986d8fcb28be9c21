//! How requests go out over a connection: each by itself while there are few, together when there are many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value};
use tokio::task::AbortHandle;
use tollgate_core::Result;

use crate::batch::Batch;
use crate::endpoint::Endpoint;
use crate::pulse::Pulse;
use crate::stream::Stream;
use tollgate_core::inbox::Inbox;

/// From how many requests under way it pays to send them together.
pub(crate) const MANY: usize = 4;

/// A few answers to those who take and give back locks of one Redis.
pub(crate) const SHORT: usize = 16;

/// A connection, with the tasks of the runtime it was opened on that drive it. Closed when it is dropped.
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    pulse: Arc<Pulse>,
    batch: Arc<Batch>,
    tap: Tap,
}

/// Whether a connection has ended, from either side.
#[derive(Default)]
pub(crate) struct End {
    has_come: AtomicBool,
    /// Who listens on it: what is said from then on is said to nobody.
    listener: Option<Arc<Inbox>>,
}

impl End {
    pub(crate) fn heard_by(listener: Option<Arc<Inbox>>) -> Self {
        Self { has_come: AtomicBool::new(false), listener }
    }

    /// It has ended.
    pub(crate) fn come(&self) {
        if !self.has_come.swap(true, Ordering::AcqRel)
            && let Some(listener) = &self.listener
        {
            listener.lose();
        }
    }
}

/// What closes a connection.
#[derive(Clone)]
pub(crate) struct Tap {
    end: Arc<End>,
    /// What reads and writes.
    driver: AbortHandle,
    /// What sends requests together.
    sender: AbortHandle,
    sweeper: AbortHandle,
}

impl Tap {
    pub(crate) fn close(&self) {
        self.end.come();
        self.driver.abort();
        self.sender.abort();
        self.sweeper.abort();
    }
}

impl Wire {
    /// Opens a connection whose tasks run on the current runtime, until its `end`. `slice` is how many bytes a few of the
    /// usual answers have.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        config: AsyncConnectionConfig,
        end: Arc<End>,
        pulse: Arc<Pulse>,
        slice: usize,
    ) -> Result<Self> {
        let stream = Stream::new(endpoint.connect().await?, pulse.clone(), slice);
        let opened = MultiplexedConnection::new_with_config(endpoint.login(), stream, config).await;
        let (connection, driver) = opened.map_err(|error| match pulse.is_overlong() {
            true => endpoint.is_no_redis(error),
            false => endpoint.of_greeting(error),
        })?;
        let driver = tokio::spawn(driver).abort_handle();
        let batch = Arc::new(Batch::default());
        let sender = tokio::spawn(batch.clone().send(connection.clone())).abort_handle();
        let sweeper = tokio::spawn(batch.clone().sweep()).abort_handle();
        Ok(Self { connection, pulse, batch, tap: Tap { end, driver, sender, sweeper } })
    }

    /// The driver's own handle, for what is done once.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    pub(crate) fn tap(&self) -> &Tap {
        &self.tap
    }

    /// Whether nothing can be sent over it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.tap.end.has_come.load(Ordering::Acquire) || self.tap.driver.is_finished()
    }

    /// Sends one command and waits for its answer, as long as the connection lives.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        let _under_way = self.pulse.begin();
        if self.go_together() {
            let mut answers = self.batch.ask(std::iter::once(command.clone())).await?;
            return answers.pop().unwrap_or_default().extract_error();
        }
        Box::pin(async { self.connection().send_packed_command(command).await?.extract_error() }).await
    }

    /// Sends commands in one go, and waits for what each is answered: a value or an error of its own.
    pub(crate) async fn commands(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        let _under_way = self.pulse.begin();
        if self.go_together() {
            return self.batch.ask(commands.into_iter()).await;
        }
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command);
        }
        Box::pin(async { self.connection().send_packed_commands(&pipeline, 0, pipeline.len()).await }).await
    }

    /// Nothing overtakes: whoever withdraws a request must come after it.
    fn go_together(&self) -> bool {
        self.pulse.unanswered() >= MANY || !self.batch.is_idle()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.tap.close();
    }
}
