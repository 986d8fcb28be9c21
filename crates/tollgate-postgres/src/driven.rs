//! A connection that is driven by whoever uses it.
//!
//! The driver's own way is a task that reads and writes and is woken for each statement, and wakes the caller. Here the
//! caller's task does that itself: a statement costs no change of tasks, and a connection that nobody uses costs nothing.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{
    AsyncMessage, Client, Connection, Notification, Row, SimpleQueryMessage, Statement as Prepared,
};

use crate::error::Trouble;

/// What a statement is answered with.
pub(crate) type Answer<T> = std::result::Result<T, Trouble>;

/// A value for a statement.
pub(crate) type Value<'a> = &'a (dyn ToSql + Sync);

/// What reads and writes: it ends when the connection does, and says what the server says unasked.
type Drive = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<std::result::Result<AsyncMessage, tokio_postgres::Error>>>
        + Send,
>;

/// What reads and writes, until the connection has ended.
struct Driver {
    /// Gone when the connection has ended: only then do pending requests hear of it.
    drive: Option<Drive>,
    /// Why it has ended. Pending requests are told by the driver only that it has.
    cause: Option<tokio_postgres::Error>,
    /// Notifications that came while a statement ran. Connections that do not listen get none.
    heard: VecDeque<Notification>,
}

impl Driver {
    fn end(&mut self, cause: Option<tokio_postgres::Error>) {
        self.drive = None;
        self.cause = cause;
    }

    /// Takes what the server said unasked.
    fn hear(&mut self, message: AsyncMessage) {
        if let AsyncMessage::Notification(notification) = message {
            self.heard.push_back(notification);
        }
    }
}

/// A connection.
pub(crate) struct Driven {
    client: Client,
    driver: Driver,
}

impl Driven {
    /// What the driver opened.
    pub(crate) fn new<S, T>(client: Client, mut connection: Connection<S, T>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let drive: Drive = Box::new(move |context| connection.poll_message(context));
        Self { client, driver: Driver { drive: Some(drive), cause: None, heard: VecDeque::new() } }
    }

    /// The same, driven by a task of its own as long as the client lives.
    pub(crate) fn into_client(self) -> Client {
        let Self { client, mut driver } = self;
        tokio::spawn(async move {
            while let Some(drive) = driver.drive.as_mut() {
                match poll_fn(drive).await {
                    Some(Ok(_)) => {}
                    None | Some(Err(_)) => driver.end(None),
                }
            }
        });
        client
    }

    /// Whether it has ended, as far as is known.
    pub(crate) fn has_ended(&self) -> bool {
        self.driver.drive.is_none() || self.client.is_closed()
    }

    /// Whether it is still there, as far as can be told without asking. Reads what came unasked.
    pub(crate) fn is_usable(&mut self) -> bool {
        turn(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        !self.has_ended()
    }

    /// The next notification. Ends with the connection. Dropping this loses none.
    pub(crate) async fn notification(&mut self) -> Option<Notification> {
        loop {
            if let Some(notification) = self.driver.heard.pop_front() {
                return Some(notification);
            }
            let drive = self.driver.drive.as_mut()?;
            match poll_fn(drive).await {
                Some(Ok(message)) => self.driver.hear(message),
                None | Some(Err(_)) => self.driver.end(None),
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

/// Reads and writes what there is. Notifications are kept for [`Driven::notification`].
fn turn(driver: &mut Driver, context: &mut Context<'_>) {
    while let Some(drive) = &mut driver.drive {
        match drive(context) {
            Poll::Pending => return,
            Poll::Ready(Some(Ok(message))) => driver.hear(message),
            Poll::Ready(None) => driver.end(None),
            Poll::Ready(Some(Err(cause))) => driver.end(Some(cause)),
        }
    }
}

/// Waits for `request` and does what it takes meanwhile.
async fn driven<T>(
    driver: &mut Driver,
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
    answer.await.map_err(|error| {
        let cause = driver.cause.take().filter(|_| error.is_closed());
        Trouble::of(cause.unwrap_or(error))
    })
}
