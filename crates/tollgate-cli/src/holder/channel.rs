//! The messages between a holder process and its clients: JSON, one per line.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tollgate::{Grant, Moment, OwnerId};

/// The environment variable with the descriptor of the holder's socket; its presence makes a
/// process a holder.
pub(super) const ENV: &str = "TOLLGATE_HOLDER";

/// The process name of the holder, as tools like `ps` show it.
pub(super) const ARG0: &str = "tollgate-holder";

/// The longest message.
const LONGEST_LINE: u64 = 1 << 20;

/// A message from the process that starts a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Prepare to hold these locks.
    Prepare {
        url: String,
        locks: Vec<(Grant, RawFd)>,
        until: Moment,
        /// Paths where the holder may listen for requests, the best one first; empty if there will
        /// be no requests.
        sockets: Vec<PathBuf>,
    },
    /// The locks belong to the holder from now on.
    Start,
    /// No client has the grant: release the locks.
    Release,
}

/// A message from the holder to the process that started it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum News {
    Ready {
        /// The path where the holder listens.
        socket: Option<PathBuf>,
    },
    Started,
    /// The holder cannot hold the locks, and has left them alone.
    Failed(String),
}

/// A request from a client that has the grant.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Extend { owner: OwnerId, ttl: Duration },
    Release { owner: OwnerId },
}

/// The holder's reply to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Extended(Moment),
    Released,
    /// The holder does not have that grant, or not any more.
    Lost,
    /// The request is refused, with the reason.
    Refused(String),
}

/// One end of a socket that carries messages.
pub(super) struct Channel {
    lines: BufReader<Take<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
    /// The part of a line that was read before a `hear` was dropped.
    partial: Vec<u8>,
}

impl Channel {
    pub(super) fn new(socket: UnixStream) -> Self {
        let (reader, writer) = socket.into_split();
        Self { lines: BufReader::new(reader.take(LONGEST_LINE)), writer, partial: Vec::new() }
    }

    pub(super) fn from_std(socket: std::os::unix::net::UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket).map(Self::new)
    }

    /// Sends a message.
    pub(super) async fn tell(&mut self, what: &impl Serialize) -> std::io::Result<()> {
        let line = serde_json::to_string(what)?;
        self.writer.write_all(format!("{line}\n").as_bytes()).await
    }

    /// The next message; `None` when the other side is gone, or sends an invalid message.
    pub(super) async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.lines.read_until(b'\n', &mut self.partial).await.ok()?;
        serde_json::from_slice(&std::mem::take(&mut self.partial)).ok()
    }

    /// The process at the other end, if the kernel reports it.
    pub(super) fn peer(&self) -> Option<rustix::process::Pid> {
        let credentials = self.writer.as_ref().peer_cred().ok()?;
        rustix::process::Pid::from_raw(credentials.pid()?)
    }
}
