//! What both fakes speak: one request per connection, a line of JSON out and a line of JSON back.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tollgate_core::{Error, ErrorKind, Result};

use crate::fault::Operation;

/// How long an engine on this very host may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often an engine looks what is due though nobody asks.
const TICK: Duration = Duration::from_millis(10);

/// An engine behind a port.
pub(super) trait Engine: Send + 'static {
    /// What it is asked.
    type Request: DeserializeOwned + Send;
    /// What it answers.
    type Reply: Serialize + Send;

    /// Does what is asked, after what is due.
    fn handle(&mut self, request: Self::Request) -> Answer<Self::Reply>;

    /// Does what is due.
    fn tick(&mut self);
}

/// When an engine answers.
pub(super) enum Answer<R> {
    /// At once.
    Now(R),
    /// When it has something to say; the connection stays open until then.
    Later(oneshot::Receiver<R>),
}

/// Starts `engine` on a thread of its own and answers with its address. It ends with the process.
pub(super) fn start<E: Engine>(engine: E) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("a bound port has an address").to_string();
    listener.set_nonblocking(true).expect("a socket can be set up");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let serving = move || {
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a socket can be registered");
            serve(listener, Arc::new(Mutex::new(engine))).await
        })
    };
    std::thread::Builder::new()
        .name("fake-engine".to_owned())
        .spawn(serving)
        .expect("a test can start a thread");
    address
}

async fn serve<E: Engine>(listener: TcpListener, engine: Arc<Mutex<E>>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            _ = ticks.tick() => engine.lock().unwrap_or_else(PoisonError::into_inner).tick(),
            accepted = listener.accept() => {
                // A client that is gone before it was let in has asked for nothing.
                let Ok((connection, _)) = accepted else { continue };
                let engine = engine.clone();
                tokio::spawn(async move {
                    // A client that is gone reads no answer: what it asked for is done or was never read.
                    let _ = answer(connection, &engine).await;
                });
            }
        }
    }
}

/// Logic never sees the socket: a request comes in whole, and a reply goes out.
async fn answer<E: Engine>(connection: TcpStream, engine: &Mutex<E>) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    if !line.ends_with('\n') {
        return Ok(());
    }
    let answer = engine.lock().unwrap_or_else(PoisonError::into_inner).handle(serde_json::from_str(&line)?);
    let reply = match answer {
        Answer::Now(reply) => reply,
        Answer::Later(reply) => reply.await.map_err(io::Error::other)?,
    };
    let mut line = serde_json::to_string(&reply)?;
    line.push('\n');
    connection.write_all(line.as_bytes()).await
}

/// The client's end.
#[derive(Clone)]
pub(super) struct Wire {
    address: Arc<str>,
}

impl Wire {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.into() }
    }

    /// Asks and waits for the reply, but not for ever.
    pub(super) async fn call<A: DeserializeOwned>(&self, request: &impl Serialize) -> Result<A> {
        match tokio::time::timeout(PATIENCE, self.call_and_wait(request)).await {
            Ok(reply) => reply,
            Err(_) => Err(unknown("the engine did not answer in time")),
        }
    }

    /// Asks and waits for the reply as long as the connection lasts.
    pub(super) async fn call_and_wait<A: DeserializeOwned>(&self, request: &impl Serialize) -> Result<A> {
        let mut line = serde_json::to_string(request)
            .map_err(|error| Error::new(ErrorKind::Unexpected, "a request is plain").caused_by(error))?;
        line.push('\n');
        let connection = TcpStream::connect(&*self.address).await.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the engine cannot be reached; is it running?")
                .caused_by(error)
        })?;
        let lost = |error: io::Error| unknown("the connection was lost before the reply").caused_by(error);
        let mut connection = BufReader::new(connection);
        connection.write_all(line.as_bytes()).await.map_err(lost)?;
        line.clear();
        connection.read_line(&mut line).await.map_err(lost)?;
        if !line.ends_with('\n') {
            return Err(unknown("the engine closed the connection before the reply"));
        }
        serde_json::from_str(&line).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "the reply cannot be decoded").caused_by(error)
        })
    }
}

/// Whether a line is a request for `operation`: requests begin with what they are.
pub(super) fn asks_for(operation: Operation, line: &[u8]) -> bool {
    let words: &[&str] = match operation {
        Operation::TryAcquire | Operation::Acquire => &["Acquire"],
        Operation::Withdraw => &["Withdraw"],
        Operation::Extend => &["Extend", "Check", "Renew"],
        Operation::Release => &["Release"],
    };
    words.iter().any(|word| line.starts_with(format!("{{\"{word}\":").as_bytes()))
}

fn unknown(message: &str) -> Error {
    Error::new(ErrorKind::Indeterminate, message)
}

/// An answer to another question than the one that was asked.
pub(super) fn unexpected(reply: &impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Unexpected, format!("the engine answered {reply:?}"))
}

/// The engine says that the claim is over: withdrawn, or its session ended.
pub(super) fn over() -> Error {
    Error::new(ErrorKind::Lost, "the claim ended before it was granted; take the lock again")
}
