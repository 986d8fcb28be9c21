//! `tollgate elect`: run a command while being the leader.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use tollgate::{Election, Result};

use crate::args::ClaimArgs;
use crate::engine_url::UrlArg;
use crate::exit::Exit;
use crate::run::{self, OnLost, RunArgs};

/// Take part in a leader election, and run a command while being the leader.
///
/// Waits until this process is elected. When the command and every process that it started are
/// gone, the next candidate leads. If the leadership is lost first, the command is ended before
/// another candidate can lead; and if tollgate itself is killed, the command is killed too. To take
/// part again after that, have your service manager restart it.
///
/// The command finds the name in TOLLGATE_NAME, and in TOLLGATE_TOKEN the epoch, which is larger
/// for every later leader. The resources that the command writes to should refuse smaller epochs.
///
/// An election is the lock of its name: `tollgate run`, `ls`, `inspect` and `break` see the same
/// lock.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    url: UrlArg,

    /// How long the leadership outlives a leader that died or lost its connection, on engines where
    /// locks expire. It is renewed every third of it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::args::ttl)]
    ttl: Duration,

    /// Wait at most this long to be elected, then exit with code 75; a bare number is seconds.
    #[arg(short, long, value_name = "DURATION", value_parser = crate::args::seconds_or_duration)]
    wait: Option<Duration>,

    /// Pass the URL of the engine to the command in TOLLGATE_URL.
    #[arg(long)]
    pass_url: bool,

    /// Publish this text with the leadership: tollgate leader shows it, for example an address.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    value: String,

    /// What to do with the command when the leadership is about to be lost: SIGTERM and then
    /// SIGKILL by the deadline, SIGKILL alone, or only a message.
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    on_lost: OnLost,

    /// Kill the command if it has not ended this long after tollgate received SIGTERM and passed it
    /// on.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = tollgate::parse_duration)]
    kill_after: Duration,

    /// The name of the election.
    #[arg(value_name = "NAME")]
    name: String,

    /// The command and its arguments, after --.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate elect scheduler -- echo 'leading'
  tollgate elect --value host-7 jobs -- sh -c 'echo epoch $TOLLGATE_TOKEN'";

pub(crate) async fn run(args: ElectArgs) -> Result<Exit> {
    let claim = ClaimArgs { wait: args.wait, ..ClaimArgs::default() };
    let published = (!args.value.is_empty()).then(|| (Election::VALUE.to_owned(), args.value));
    let args = RunArgs {
        url: args.url,
        ttl: args.ttl,
        claim,
        max_hold: None,
        at_least: None,
        on_lost: args.on_lost,
        kill_after: args.kill_after,
        pass_url: args.pass_url,
        names: vec![args.name],
        command: args.command,
    };
    run::run_with_meta(args, published).await
}
