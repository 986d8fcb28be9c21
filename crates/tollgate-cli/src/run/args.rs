//! What `tollgate run` is told on the command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::args::{ClaimArgs, UrlArg};

/// Run a command while holding a lock, and release it when the command is done.
///
/// Waits until the lock is free. The lock is released when the command and everything it started are gone.
/// If the lock is lost first, the command is ended before anybody else can get in; and if tollgate itself is
/// killed, the command is killed too.
///
/// The command finds TOLLGATE_NAME, TOLLGATE_TOKEN (the fencing token: a later holder's is larger) and
/// TOLLGATE_TOKENS (a JSON object, name to token) in its environment.
///
/// Those who look at the lock see the command's first word and how many arguments it has, not the arguments.
///
/// For jobs that several machines or several schedulers start at about the same time, --at-least keeps the
/// lock after a command that was quick, so that those whose clocks are late find it taken: use it with --try.
/// On file: a small process stays behind for that; in a systemd unit, KillMode=process lets it stay.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) url: UrlArg,

    /// How long the lock outlives a holder that vanishes, on engines where locks expire. Renewed every third
    /// of it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = tollgate::parse_duration)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) claim: ClaimArgs,

    /// End the command after holding the lock this long (exit code 76).
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Keep the lock until this long after it was granted, even if the command is done earlier. tollgate itself
    /// returns at once; on file: a small process stays behind and holds the lock. A lost lock is not kept, nor
    /// that of a command that could not be started; and on file: killing tollgate with SIGKILL while the command
    /// runs frees it at once.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration)]
    pub(crate) at_least: Option<Duration>,

    /// What to do with the command when the lock is about to be lost: SIGTERM and then SIGKILL by the
    /// deadline, SIGKILL alone, or nothing but a message.
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// Kill the command if it has not ended this long after a SIGTERM that was sent to tollgate.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = tollgate::parse_duration)]
    pub(crate) kill_after: Duration,

    /// The lock; several names are taken all or nothing, in an order that cannot deadlock. Names that start with
    /// a dash are written behind a -- of their own: tollgate run -- -NAME -- COMMAND.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,

    /// The command and its arguments, after --.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate run nightly-report -- echo 'one at a time'
  tollgate run --try deploy -- sh -c 'echo passage $TOLLGATE_TOKEN'
  tollgate run --permits 3 gpu -- echo 'three at a time'
  tollgate run --wait 10s --max-hold 1h acc/7 acc/9 -- echo 'both or none'
  tollgate run --try --at-least 2s --max-hold 10m cron/x -- echo 'only once'";

/// What happens to the command when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM before the deadline, SIGKILL by it.
    Term,
    /// SIGKILL by the deadline.
    Kill,
    /// A message.
    Ignore,
}
