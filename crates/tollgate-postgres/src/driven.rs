//! A connection that is driven by whoever uses it.
//!
//! The driver's own way is a task that reads and writes and is woken for each statement, and wakes the caller. Here the
//! caller's task does that itself: a statement costs no change of tasks, and a connection that nobody uses costs nothing.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Notification, Row, SimpleQueryMessage,
    Statement as Prepared,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate_core::Result;

use crate::config::PostgresConfig;
use crate::error::{Trouble, of_connect};
use crate::plain::patiently;

/// What a statement is answered with.
pub(crate) type Answer<T> = std::result::Result<T, Trouble>;

/// A value for a statement.
pub(crate) type Value<'a> = &'a (dyn ToSql + Sync);

/// What reads and writes: it ends when the connection does, and says what the server says unasked.
type Driver = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<std::result::Result<AsyncMessage, tokio_postgres::Error>>>
        + Send,
>;

/// A connection.
pub(crate) struct Driven {
    client: Client,
    /// Gone when the connection has ended: only then do those who wait for answers hear of it.
    driver: Option<Driver>,
}

impl Driven {
    /// Connects.
    pub(crate) async fn open(config: &PostgresConfig, server: &Config) -> Result<Self> {
        let failed = |error| of_connect(error, config);
        let Some(files) = &config.tls else {
            let opened = patiently(|| server.connect(NoTls)).await;
            let (client, connection) = opened.map_err(failed)?;
            return Ok(Self::new(client, connection));
        };
        let tls = MakeRustlsConnect::new((*tollgate_core::tls::client(files, &[])?).clone());
        let opened = patiently(|| server.connect(tls.clone())).await;
        let (client, connection) = opened.map_err(failed)?;
        Ok(Self::new(client, connection))
    }

    /// What the driver opened.
    pub(crate) fn new<S, T>(client: Client, mut connection: Connection<S, T>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self { client, driver: Some(Box::new(move |context| connection.poll_message(context))) }
    }

    /// Whether it has ended, as far as is known.
    pub(crate) fn has_ended(&self) -> bool {
        self.driver.is_none() || self.client.is_closed()
    }

    /// Whether it is still there, as far as can be told without asking. Reads what came unasked.
    pub(crate) fn is_usable(&mut self) -> bool {
        turn(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        !self.has_ended()
    }

    /// The next notification. Ends with the connection.
    pub(crate) async fn notification(&mut self) -> Option<Notification> {
        loop {
            let driver = self.driver.as_mut()?;
            match poll_fn(driver).await {
                Some(Ok(AsyncMessage::Notification(notification))) => return Some(notification),
                Some(Ok(_)) => {}
                None | Some(Err(_)) => self.driver = None,
            }
        }
    }

    /// Runs statements without values, one after the other, and answers with the rows of the last.
    pub(crate) async fn simple(&mut self, sql: &str) -> Answer<Vec<SimpleQueryMessage>> {
        let Self { client, driver } = self;
        driven(driver, client.simple_query(sql)).await
    }

    /// Runs a statement that has no name at the server, as poolers need it: the next may go to another server process.
    pub(crate) async fn unnamed(&mut self, sql: &str, values: &[(Value<'_>, Type)]) -> Answer<Vec<Row>> {
        let Self { client, driver } = self;
        driven(driver, client.query_typed(sql, values)).await
    }

    /// Runs a statement that is prepared once, and known as `place` from then on.
    pub(crate) async fn prepared(
        &mut self,
        place: &mut Option<Prepared>,
        sql: &str,
        types: &[Type],
        values: &[Value<'_>],
    ) -> Answer<Vec<Row>> {
        let Self { client, driver } = self;
        let known = match place {
            Some(known) => known,
            None => {
                let made = driven(driver, client.prepare_typed(sql, types)).await;
                // Nothing was done yet.
                place.insert(made.map_err(Trouble::not_done)?)
            }
        };
        driven(driver, client.query(known, values)).await
    }
}

/// Reads and writes what there is. Nobody here wants what the server says unasked.
fn turn(driver: &mut Option<Driver>, context: &mut Context<'_>) {
    while let Some(drive) = driver {
        match drive(context) {
            Poll::Pending => return,
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => *driver = None,
        }
    }
}

/// Waits for `request` and does what it takes meanwhile.
async fn driven<T>(
    driver: &mut Option<Driver>,
    request: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> Answer<T> {
    let mut request = pin!(request);
    // The request and its answer go through channels whose other end is driven here. They would wake this task, which
    // runs already, and with it another thread to help it; so they have nobody to wake.
    turn(driver, &mut Context::from_waker(Waker::noop()));
    let answer = poll_fn(|context| {
        let mut nobody = Context::from_waker(Waker::noop());
        // Makes the request, then writes it and reads what came, then takes the answer.
        if let Poll::Ready(answer) = request.as_mut().poll(&mut nobody) {
            return Poll::Ready(answer);
        }
        turn(driver, context);
        request.as_mut().poll(&mut nobody)
    });
    answer.await.map_err(Trouble::of)
}
