//! What a holder and others tell each other: JSON, a line each.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tollgate::{Grant, Moment, OwnerId};

/// Names the descriptor of the socket in the holder's environment; that it is there makes it a holder.
pub(super) const ENV: &str = "TOLLGATE_HOLDER";

/// What the holder calls itself, so that people who look at processes know it.
pub(super) const ARG0: &str = "tollgate-holder";

/// Nothing that is said here is longer.
const LONGEST_LINE: u64 = 1 << 20;

/// From the process that starts a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Get ready to hold these.
    Prepare {
        url: String,
        locks: Vec<(Grant, RawFd)>,
        until: Moment,
        /// Where it may listen for requests, the best place first; nowhere, if there will be none.
        sockets: Vec<PathBuf>,
    },
    /// They are yours.
    Start,
    /// Nobody got to know the grant: let go.
    Release,
}

/// From the holder to the process that started it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum News {
    Ready {
        /// Where it listens.
        socket: Option<PathBuf>,
    },
    Started,
    /// It cannot hold them, and has left them alone.
    Failed(String),
}

/// From those who have the grant.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Extend { owner: OwnerId, ttl: Duration },
    Release { owner: OwnerId },
}

/// The holder's answer to them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Extended(Moment),
    Released,
    /// It does not hold that grant, or not any more.
    Lost,
    /// The request cannot be met; why.
    Refused(String),
}

/// One end of a socket, for lines.
pub(super) struct Channel {
    lines: BufReader<Take<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
    /// What was heard of a line whose hearer gave up.
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

    /// Says something.
    pub(super) async fn tell(&mut self, what: &impl Serialize) -> std::io::Result<()> {
        let line = serde_json::to_string(what)?;
        self.writer.write_all(format!("{line}\n").as_bytes()).await
    }

    /// The next thing the other side says; `None` when it is gone, or talks nonsense.
    pub(super) async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.lines.read_until(b'\n', &mut self.partial).await.ok()?;
        serde_json::from_slice(&std::mem::take(&mut self.partial)).ok()
    }

    /// Which process is at the other end, as far as the kernel tells.
    pub(super) fn peer(&self) -> Option<rustix::process::Pid> {
        let credentials = self.writer.as_ref().peer_cred().ok()?;
        rustix::process::Pid::from_raw(credentials.pid()?)
    }
}
