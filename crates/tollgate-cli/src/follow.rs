//! What happens, a line each as it happens, until somebody ends it or nobody reads any more.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use rustix::event::{PollFd, PollFlags, poll};
use tollgate::{Error, Result};

use crate::exit::{Exit, report};
use crate::signals::Signals;
use crate::tell;

/// How often it is looked whether anybody reads, and how soon after an error the engine is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Whom is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    One,
    /// One that cannot be read hides no other.
    Many,
}

/// Prints a `line` for each of `items`. An engine that is away is waited for.
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
                if nobody_reads() {
                    return Ok(Exit::OK);
                }
            }
        }
    }
}

/// To end is all that following can be asked for.
fn ended_by(signal: i32) -> Exit {
    if [libc::SIGINT, libc::SIGTERM].contains(&signal) { Exit::OK } else { Exit::of_signal(signal) }
}

/// An engine that is away for hours is worth one message.
fn note_once(told: &mut Option<String>, error: &Error) {
    let text = error.to_string();
    if told.as_ref() != Some(&text) {
        tell::note(&format!("{text}; trying again"));
        *told = Some(text);
    }
}

/// Whether stdout is a pipe that nobody reads any more.
fn nobody_reads() -> bool {
    let stdout = std::io::stdout();
    let mut ready = [PollFd::new(&stdout, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok() && ready[0].revents().contains(PollFlags::ERR)
}
