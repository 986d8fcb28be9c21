//! The messages between `run` and its guardian: JSON, one per line.

use std::io::{BufRead, BufReader, Read, Write};

use serde::{Deserialize, Serialize};
use tollgate::Moment;

use super::sentence::{Terms, Why};

/// The environment variable with the descriptor of the guardian's socket; its presence makes a
/// process a guardian.
pub(crate) const ENV: &str = "TOLLGATE_GUARDIAN";

/// The process name of the guardian, as tools like `ps` show it.
pub(crate) const ARG0: &str = "tollgate-guardian";

/// A message from `run` to the guardian.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start the command, which must end by `deadline`, if there is one.
    Start {
        terms: Terms,
        deadline: Option<Moment>,
        /// The process group that gets the terminal back when the command is done.
        home: i32,
    },
    /// The deadline has changed.
    Deadline(Option<Moment>),
    /// The lock is lost. The engine may still keep it for this holder until the holder has left.
    Lost { still_kept: bool },
    /// Pass this signal on to the command.
    Signal(i32),
    /// Put the command back in the foreground and continue it.
    Resume,
}

/// A message from the guardian to `run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum News {
    Started,
    /// The guardian knows the deadline, so it is alive.
    Heard,
    /// The command could not be started, with the error of the operating system.
    NotStarted(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command was asked to end, or killed.
    Ending(Why),
    /// This process of the command belongs to another user, and cannot be ended.
    OutOfReach(i32),
    /// The command ended with this exit code, or by this signal.
    Exited(i32),
    Killed(i32),
    /// The command and every process that it started are gone.
    Gone,
}

/// The reading end of the socket, in the guardian, which is not asynchronous.
pub(super) struct Orders<R> {
    lines: BufReader<R>,
}

impl<R: Read> Orders<R> {
    pub(super) fn new(socket: R) -> Self {
        Self { lines: BufReader::new(socket) }
    }

    /// The next order; `None` when `run` is gone.
    pub(super) fn next(&mut self) -> Option<Order> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(1..) => serde_json::from_str(&line).ok(),
            Ok(0) | Err(_) => None,
        }
    }

    /// Whether an order has been read from the socket but not been taken yet.
    pub(super) fn has_more(&self) -> bool {
        self.lines.buffer().contains(&b'\n')
    }
}

/// Sends a message to `run`. A `run` that has died needs none, so a failure is ignored.
pub(super) fn tell(mut socket: impl Write, news: &News) {
    if let Ok(line) = serde_json::to_string(news) {
        let _ = socket.write_all(format!("{line}\n").as_bytes());
    }
}
