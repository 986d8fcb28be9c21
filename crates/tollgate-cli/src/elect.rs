//! `tollgate elect`: run a command while leading.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use tollgate::{Election, Result};

use crate::args::{ClaimArgs, UrlArg};
use crate::exit::Exit;
use crate::run::{self, OnLost, RunArgs};

/// Stand for election, and run a command while leading.
///
/// Waits until this one leads. When the command and everything it started are gone, the next one leads. If the
/// leadership is lost first, the command is ended before anybody else can lead; and if tollgate itself is killed, the
/// command is killed too. To stand again after that, have your service manager start it again.
///
/// The command finds TOLLGATE_NAME, and in TOLLGATE_TOKEN the epoch: a later leader's is larger. Whatever it writes to
/// should refuse smaller ones.
///
/// An election is the lock of its name: `tollgate run`, `ls`, `inspect` and `break` see the same one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    url: UrlArg,

    /// How long a leader that vanishes leads, on engines where locks expire. Renewed every third of it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = tollgate::parse_duration)]
    ttl: Duration,

    /// Stand for election at most this long (exit code 75).
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration)]
    wait: Option<Duration>,

    /// What everybody sees who asks for the leader: where it is to be found, for example.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    value: String,

    /// What to do with the command when the leadership is about to be lost: SIGTERM and then SIGKILL by the
    /// deadline, SIGKILL alone, or nothing but a message.
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    on_lost: OnLost,

    /// Kill the command if it has not ended this long after a SIGTERM that was sent to tollgate.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = tollgate::parse_duration)]
    kill_after: Duration,

    /// What is led.
    #[arg(value_name = "NAME")]
    name: String,

    /// The command and its arguments, after --.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate elect scheduler -- echo 'I lead'
  tollgate elect --value host-7 jobs -- sh -c 'echo epoch $TOLLGATE_TOKEN'";

pub(crate) async fn run(args: ElectArgs) -> Result<Exit> {
    let claim = ClaimArgs { wait: args.wait, ..ClaimArgs::default() };
    let said = (!args.value.is_empty()).then(|| (Election::VALUE.to_owned(), args.value));
    let args = RunArgs {
        url: args.url,
        ttl: args.ttl,
        claim,
        max_hold: None,
        at_least: None,
        on_lost: args.on_lost,
        kill_after: args.kill_after,
        names: vec![args.name],
        command: args.command,
    };
    run::run_saying(args, said).await
}
