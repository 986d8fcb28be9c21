//! Prints a stream of events, one line each, until a signal or until the reader of stdout has gone.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use rustix::event::{PollFd, PollFlags, poll};
use tollgate::{Error, Result};

use crate::exit::{Exit, report};
use crate::signals::Signals;
use crate::tell;

/// How often the reader of stdout is checked, and how soon after an error the engine is asked
/// again.
const PAUSE: Duration = Duration::from_millis(500);

/// What is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// One lock: an error about it ends the command.
    One,
    /// Many locks: one that cannot be read is reported, and the others are still followed.
    Many,
}

/// Prints a `line` for each of `items`. Waits for an engine that cannot be reached.
pub(crate) async fn follow<T>(
    of: Of,
    items: &mut (impl Stream<Item = Result<T>> + Unpin),
    line: impl Fn(&T) -> String,
    signals: &mut Signals,
) -> Result<Exit> {
    let mut trouble = None;
    loop {
        tokio::select! {
            item = items.next() => match item {
                Some(Ok(item)) => {
                    trouble = None;
                    let line = line(&item);
                    let is_read = tokio::select! {
                        is_read = tell::line(&line) => is_read?,
                        signal = signals.next() => return Ok(ended_by(signal)),
                    };
                    if !is_read {
                        return Ok(Exit::OK);
                    }
                }
                Some(Err(error)) if of == Of::Many && error.lock().is_some() && !error.is_retryable() => {
                    report(&error);
                }
                Some(Err(error)) if error.is_retryable() => {
                    note_once(&mut trouble, &error);
                    tokio::time::sleep(PAUSE).await;
                }
                Some(Err(error)) => return Err(error),
                None => return Ok(Exit::OK),
            },
            signal = signals.next() => return Ok(ended_by(signal)),
            () = tokio::time::sleep(PAUSE) => {
                if reader_is_gone() {
                    return Ok(Exit::OK);
                }
            }
        }
    }
}

/// The exit code after a signal: SIGINT and SIGTERM are the normal end of the command.
fn ended_by(signal: i32) -> Exit {
    if [libc::SIGINT, libc::SIGTERM].contains(&signal) { Exit::OK } else { Exit::of_signal(signal) }
}

/// Reports an error once, until it changes: an outage of hours is one message.
fn note_once(reported: &mut Option<String>, error: &Error) {
    let text = error.to_string();
    if reported.as_ref() != Some(&text) {
        tell::note(&format!("{text}; retrying"));
        *reported = Some(text);
    }
}

/// Whether stdout is a pipe whose reader has gone.
fn reader_is_gone() -> bool {
    let stdout = std::io::stdout();
    let mut ready = [PollFd::new(&stdout, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok() && ready[0].revents().contains(PollFlags::ERR)
}
