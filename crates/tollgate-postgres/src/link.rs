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

use crate::config::PostgresConfig;
use crate::error::{Trouble, of_connect, silent};
use crate::statement::{COUNT, Statement, Texts};

/// What drives a connection: it ends when that does, and says what the server says unasked.
type Driver = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<std::result::Result<AsyncMessage, tokio_postgres::Error>>>
        + Send,
>;

/// A connection.
pub(crate) struct Link {
    client: Client,
    driver: Driver,
    /// Why it ended, if it did.
    ended: bool,
    texts: Arc<Texts>,
    prepared: [Option<Prepared>; COUNT],
    /// The server's process, if there is no pooler in between.
    pub(crate) process: Option<i32>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("process", &self.process)
            .field("ended", &self.ended)
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
        Ok(Self { client, driver, ended: false, texts, prepared: Default::default(), process: None })
    }

    /// Whether it is still there, as far as can be told without asking.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.turn(&mut Context::from_waker(Waker::noop()));
        !self.ended && !self.client.is_closed()
    }

    /// Reads and writes what there is. Nobody here wants what the server says unasked.
    fn turn(&mut self, context: &mut Context<'_>) {
        while !self.ended {
            match (self.driver)(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => self.ended = true,
            }
        }
    }

    /// The next notification. Ends with the connection.
    pub(crate) async fn notification(&mut self) -> Option<tokio_postgres::Notification> {
        loop {
            match poll_fn(|context| (self.driver)(context)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => return Some(notification),
                Some(Ok(_)) => {}
                None | Some(Err(_)) => return None,
            }
        }
    }

    /// Runs statements without values, one after the other, and answers with the rows of the last.
    pub(crate) async fn simple(
        &mut self,
        sql: &str,
    ) -> std::result::Result<Vec<tokio_postgres::SimpleQueryMessage>, Trouble> {
        let Self { client, driver, ended, .. } = self;
        driven(driver, ended, client.simple_query(sql)).await
    }

    /// Runs a statement, prepared once for each connection, and answers with its rows.
    pub(crate) async fn run(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
    ) -> std::result::Result<Vec<Row>, Trouble> {
        let Self { client, driver, ended, texts, prepared, .. } = self;
        let place = &mut prepared[statement as usize];
        let known = match place {
            Some(known) => known,
            None => {
                let types = statement.types();
                let made = driven(driver, ended, client.prepare_typed(texts.of(statement), types)).await;
                // Nothing was done yet.
                place.insert(made.map_err(Trouble::not_done)?)
            }
        };
        driven(driver, ended, client.query(known, values)).await
    }

    /// The same without a name for it, as poolers need it: the next statement may go to another server process.
    pub(crate) async fn run_unnamed(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
    ) -> std::result::Result<Vec<Row>, Trouble> {
        let Self { client, driver, ended, texts, .. } = self;
        let typed: Vec<_> = values.iter().copied().zip(statement.types().iter().cloned()).collect();
        driven(driver, ended, client.query_typed(texts.of(statement), &typed)).await
    }
}

/// Waits for `request` and does what it takes meanwhile.
async fn driven<T>(
    driver: &mut Driver,
    ended: &mut bool,
    request: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> std::result::Result<T, Trouble> {
    let mut request = pin!(request);
    let answer = poll_fn(|context| {
        // Makes the request, then writes it and reads what came, then takes the answer.
        if let Poll::Ready(answer) = request.as_mut().poll(context) {
            return Poll::Ready(answer);
        }
        while !*ended {
            match driver(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => *ended = true,
            }
        }
        request.as_mut().poll(context)
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
    let answer = tokio::time::timeout(limit, request).await;
    (sent, answer.unwrap_or_else(|_| Err(silent(limit))))
}
