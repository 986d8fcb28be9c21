//! `tollgate watch`: the grants of locks and their ends, as they happen.

use std::ops::ControlFlow;

use clap::Args;
use tollgate::{Event, Happening, Result};

use crate::connect::connect_or_end;
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::follow::{Of, follow};
use crate::signals::Signals;
use crate::{show, tell};

/// Print a line for every grant of a lock and for every end of a grant, until interrupted.
///
/// Watches every lock, or the locks whose names start with PREFIX. etcd reports the events itself.
/// The locks of all other engines are listed at intervals: every 250 ms (file: every 100 ms) while
/// nothing changes, every 20 ms in the 2 s after a change, less often where a listing takes long. A
/// grant that begins and ends between two listings is skipped. Events of one name never come out of
/// order.
///
/// A line names the time, the event, the lock, the token and the holder. The event is granted, or
/// how the grant ended: expired if its ttl had ended, revoked where the engine shows that an
/// operator broke the lock (etcd), ended where the engine cannot tell how the grant ended.
///
/// A lock that cannot be read is reported once, on stderr; the other locks are still watched.
///
/// Exits with code 0 on Ctrl-C or SIGTERM, and when the reader of its output has gone. A signal
/// that arrives before the engine has answered for the first time ends it with 128 + n.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    url: UrlArg,

    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,

    /// Watch only locks whose names start with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
}

const EXAMPLES: &str = "\
Examples:
  timeout --preserve-status 1 tollgate watch
  timeout --preserve-status 1 tollgate watch accounts/ --json";

pub(crate) async fn run(args: WatchArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let locks = match connect_or_end(&args.url.resolve()?, &mut signals).await? {
        ControlFlow::Continue(locks) => locks,
        ControlFlow::Break(exit) => return Ok(exit),
    };
    let mut events = locks.events(&args.prefix);
    let which = if args.prefix.is_empty() {
        "all locks".to_owned()
    } else {
        format!("locks whose names start with {:?}", args.prefix)
    };
    tell::note_on_terminal(&format!("watching {which}; Ctrl-C ends it"));
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
    let holder = event.holder.as_ref().map(|holder| format!("  {}", show::who(holder))).unwrap_or_default();
    let (time, name) = (show::time(event.at_ms), show::printable(event.name.as_str()));
    format!("{time}  {what:8}  {name}  token {}{holder}", event.token)
}
