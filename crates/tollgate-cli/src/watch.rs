//! `tollgate watch`: what happens to locks, as it happens.

use std::ops::ControlFlow;

use clap::Args;
use tollgate::{Event, Happening, Result};

use crate::args::UrlArg;
use crate::connect::connect_or_end;
use crate::exit::Exit;
use crate::follow::{Of, follow};
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
    follow(Of::Many, &mut events, |event| line(event, args.json), &mut signals)
        .await
        .map_err(|error| error.during("watch"))
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
