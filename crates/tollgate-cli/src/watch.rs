//! `tollgate watch`: what happens to locks, as it happens.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use rustix::event::{PollFd, PollFlags, poll};
use tollgate::{Error, Event, Happening, Result};

use crate::args::UrlArg;
use crate::connect::connect_or_end;
use crate::exit::{Exit, report};
use crate::signals::Signals;
use crate::{show, tell};

/// Print what happens to locks, a line each, until it is interrupted.
///
/// Tells of every lock, or of those whose names start with PREFIX: who got in, and who left. What happens faster than
/// the engine tells may be skipped, but never comes out of order for a name. On file: locks are looked at ten times a
/// second, and an end may be a release as well as a crash.
///
/// A lock that cannot be read is told of once, on stderr, and hides no other.
///
/// Ends with exit code 0 on Ctrl-C or SIGTERM, and when nobody reads any more. A signal that comes before the engine
/// has answered for the first time ends it as usual, with 128 + n.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print a JSON object per line.
    #[arg(long)]
    json: bool,

    /// Only names that start with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
}

const EXAMPLES: &str = "\
Examples:
  timeout --preserve-status 1 tollgate watch
  timeout --preserve-status 1 tollgate watch accounts/ --json";

/// How often it is looked whether anybody reads, and how soon after an error the engine is asked again.
const PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: WatchArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let locks = match connect_or_end(&args.url.url, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let mut events = locks.events(&args.prefix);
    let which =
        if args.prefix.is_empty() { "all locks".to_owned() } else { format!("locks {:?}…", args.prefix) };
    tell::note_on_terminal(&format!("watching {which} of {}; Ctrl-C ends it", args.url.url));
    let mut trouble = None;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => {
                    trouble = None;
                    let line = line(&event, args.json);
                    let is_read = tokio::select! {
                        is_read = tell::line(&line) => is_read?,
                        signal = signals.next() => return Ok(ended_by(signal)),
                    };
                    if !is_read {
                        return Ok(Exit::OK);
                    }
                }
                // One lock that cannot be read hides no other.
                Some(Err(error)) if error.lock().is_some() && !error.is_retryable() => {
                    report(&error);
                }
                Some(Err(error)) if error.is_retryable() => {
                    note_once(&mut trouble, &error);
                    tokio::time::sleep(PAUSE).await;
                }
                Some(Err(error)) => return Err(error.during("watch")),
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

/// To end is all that watching can be asked for.
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

fn line(event: &Event, json: bool) -> String {
    if json {
        return serde_json::to_string(event).unwrap_or_default();
    }
    let what = match event.what {
        Happening::Granted => "granted",
        Happening::Ended => "ended",
        Happening::Released => "released",
        Happening::Expired => "expired",
        Happening::Revoked => "revoked",
        _ => "changed",
    };
    format!("{what:8}  {}  token {}", show::printable(event.name.as_str()), event.token)
}

/// Whether stdout is a pipe that nobody reads any more.
fn nobody_reads() -> bool {
    let stdout = std::io::stdout();
    let mut ready = [PollFd::new(&stdout, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok() && ready[0].revents().contains(PollFlags::ERR)
}
