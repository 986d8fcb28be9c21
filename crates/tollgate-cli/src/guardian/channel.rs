//! What `run` and its guardian tell each other: JSON, a line each.

use std::io::{BufRead, BufReader, Read, Write};

use serde::{Deserialize, Serialize};
use tollgate::Moment;

use super::sentence::{Terms, Why};

/// Names the descriptor of the socket in the guardian's environment; that it is there makes it a guardian.
pub(crate) const ENV: &str = "TOLLGATE_GUARDIAN";

/// What the guardian calls itself, so that people who look at processes know it.
pub(crate) const ARG0: &str = "tollgate-guardian";

/// From `run`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start the command. It must end by `deadline`, if there is one.
    Start {
        terms: Terms,
        deadline: Option<Moment>,
        /// The process group that gets the terminal back when the command is done.
        home: i32,
    },
    /// There is a new deadline.
    Deadline(Option<Moment>),
    /// The lock is lost already.
    Lost,
    /// Pass this signal on to the command.
    Signal(i32),
    /// Put the command back in the foreground and let it go on.
    Resume,
}

/// From the guardian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum News {
    Started,
    /// It knows the deadline: it is alive.
    Heard,
    /// The command could not be started; what the operating system said.
    NotStarted(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It was asked to end, or killed.
    Ending(Why),
    /// It ended, with this code or by this signal.
    Exited(i32),
    Killed(i32),
    /// It and everything it started are gone.
    Gone,
}

/// The socket's reading side, in the guardian, where nothing is asynchronous.
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

/// Tells `run`. If it is gone, nobody needs to know.
pub(super) fn tell(mut socket: impl Write, news: &News) {
    if let Ok(line) = serde_json::to_string(news) {
        let _ = socket.write_all(format!("{line}\n").as_bytes());
    }
}
