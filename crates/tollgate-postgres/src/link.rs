//! One connection, driven by whoever uses it.
//!
//! The driver's own way is a task that reads and writes and is woken for each statement, and wakes the caller. Here the
//! caller's task does that itself: a statement costs no change of tasks, and a connection that nobody uses costs nothing.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, Statement as Prepared};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate_core::{Clock, Moment, Result};
use tollgate_sql::within;

use crate::config::PostgresConfig;
use crate::error::{Trouble, of_connect, silent};
use crate::statement::{COUNT, Statement, Texts};

/// What drives a connection: it ends when that does, and says what the server says unasked.
pub(crate) type Driver = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<std::result::Result<AsyncMessage, tokio_postgres::Error>>>
        + Send,
>;

/// A connection.
pub(crate) struct Link {
    client: Client,
    /// Gone when the connection has ended: only then do those who wait for answers hear of it.
    driver: Option<Driver>,
    texts: Arc<Texts>,
    prepared: [Option<Prepared>; COUNT],
    /// The server's process, if there is no pooler in between.
    pub(crate) process: Option<i32>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("process", &self.process)
            .field("ended", &self.driver.is_none())
            .finish_non_exhaustive()
    }
}

/// A value for a statement.
pub(crate) type Value<'a> = &'a (dyn ToSql + Sync);

impl Link {
    /// Connects.
    pub(crate) async fn open(
        config: &PostgresConfig,
        server: &tokio_postgres::Config,
        texts: Arc<Texts>,
    ) -> Result<Self> {
        let (client, driver): (Client, Driver) = match &config.tls {
            None => {
                let (client, mut connection) =
                    server.connect(NoTls).await.map_err(|error| of_connect(error, config))?;
                (client, Box::new(move |context| connection.poll_message(context)))
            }
            Some(files) => {
                let tls = tollgate_core::tls::client(files, &[])?;
                let tls = MakeRustlsConnect::new((*tls).clone());
                let (client, mut connection) =
                    server.connect(tls).await.map_err(|error| of_connect(error, config))?;
                (client, Box::new(move |context| connection.poll_message(context)))
            }
        };
        Ok(Self { client, driver: Some(driver), texts, prepared: Default::default(), process: None })
    }

    /// Whether it is still there, as far as can be told without asking.
    pub(crate) fn is_usable(&mut self) -> bool {
        turn(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && !self.client.is_closed()
    }

    /// The next notification. Ends with the connection.
    pub(crate) async fn notification(&mut self) -> Option<tokio_postgres::Notification> {
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
    pub(crate) async fn simple(
        &mut self,
        sql: &str,
    ) -> std::result::Result<Vec<tokio_postgres::SimpleQueryMessage>, Trouble> {
        let Self { client, driver, .. } = self;
        driven(driver, client.simple_query(sql)).await
    }

    /// Runs a statement, prepared once for each connection, and answers with its rows.
    pub(crate) async fn run(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
    ) -> std::result::Result<Vec<Row>, Trouble> {
        let Self { client, driver, texts, prepared, .. } = self;
        let place = &mut prepared[statement as usize];
        let known = match place {
            Some(known) => known,
            None => {
                let types = statement.types();
                let made = driven(driver, client.prepare_typed(texts.of(statement), types)).await;
                // Nothing was done yet.
                place.insert(made.map_err(Trouble::not_done)?)
            }
        };
        driven(driver, client.query(known, values)).await
    }

    /// The same without a name for it, as poolers need it: the next statement may go to another server process.
    pub(crate) async fn run_unnamed(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
    ) -> std::result::Result<Vec<Row>, Trouble> {
        let Self { client, driver, texts, .. } = self;
        let typed: Vec<_> = values.iter().copied().zip(statement.types().iter().cloned()).collect();
        driven(driver, client.query_typed(texts.of(statement), &typed)).await
    }
}

/// Reads and writes what there is. Nobody here wants what the server says unasked.
pub(crate) fn turn(driver: &mut Option<Driver>, context: &mut Context<'_>) {
    while let Some(drive) = driver {
        match drive(context) {
            Poll::Pending => return,
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => *driver = None,
        }
    }
}

/// Waits for `request` and does what it takes meanwhile.
pub(crate) async fn driven<T>(
    driver: &mut Option<Driver>,
    request: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> std::result::Result<T, Trouble> {
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

/// When a statement was sent, and what came of it within `limit`.
pub(crate) async fn timed<T>(
    clock: &dyn Clock,
    limit: Duration,
    request: impl Future<Output = std::result::Result<T, Trouble>>,
) -> (Moment, std::result::Result<T, Trouble>) {
    let sent = clock.now();
    let answer = within(limit, request).await;
    (sent, answer.unwrap_or_else(|| Err(silent(limit))))
}
