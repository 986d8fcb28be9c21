//! The arguments of `tollgate run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::args::ClaimArgs;
use crate::engine_url::UrlArg;

/// Run a command while holding a lock, and release the lock when the command is done.
///
/// Waits until the lock is granted. The lock is released when the command and every process that it
/// started are gone. If the lock is lost first, the command is ended before the next holder can be
/// granted the lock; and if tollgate itself is killed, the command is killed too.
///
/// Without --try, a database that does not answer in time or has no connections left is tried again
/// for 30 s, or --wait if that is shorter.
///
/// The command finds in its environment TOLLGATE_TOKENS (a JSON object, name to fencing token) and,
/// if it runs under one lock, TOLLGATE_NAME and TOLLGATE_TOKEN (the fencing token: every later
/// grant has a larger one).
///
/// tollgate ls and tollgate inspect show the first word of the command and the number of its
/// arguments, not the arguments.
///
/// For a job that several machines or schedulers start at about the same time, --at-least keeps the
/// lock after a command that ended early, so that a scheduler whose clock is late finds the lock
/// held: use it with --try. On file: a small process stays behind and keeps the lock; in a systemd
/// unit, KillMode=process lets it stay.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) url: UrlArg,

    /// How long the lock outlives a holder that died or lost its connection, on engines where locks
    /// expire. The lock is renewed every third of it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::args::ttl)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) claim: ClaimArgs,

    /// End the command after holding the lock this long (exit code 76).
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Keep the lock for at least this long after it was granted, even if the command ends earlier.
    /// tollgate itself returns at once; on file: a small process stays behind and holds the lock,
    /// and with ?style=advisory or ?style=session tollgate itself stays. A lost lock is not kept,
    /// nor is the lock of a command that could not be started. On file:, killing tollgate with
    /// SIGKILL while the command runs frees the lock at once. Refused on etcd and ZooKeeper, where
    /// the lock ends with the session of its holder.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration)]
    pub(crate) at_least: Option<Duration>,

    /// What to do with the command when the lock is about to be lost: SIGTERM and then SIGKILL by
    /// the deadline, SIGKILL alone, or only a message.
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// Kill the command if it has not ended this long after tollgate received SIGTERM and passed it
    /// on.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = tollgate::parse_duration)]
    pub(crate) kill_after: Duration,

    /// Pass the URL of the engine to the command in TOLLGATE_URL, for commands that call tollgate
    /// themselves. Without it the URL, which may contain a password, is removed from the
    /// environment of the command.
    #[arg(long)]
    pub(crate) pass_url: bool,

    /// The name of the lock. Several names are taken all or nothing, in an order that cannot
    /// deadlock. Write names that start with a dash after a -- of their own: tollgate run -- -NAME
    /// -- COMMAND.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,

    /// The command and its arguments, after --.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate run nightly-report -- echo 'one at a time'
  tollgate run --try deploy -- sh -c 'echo token $TOLLGATE_TOKEN'
  tollgate run --permits 3 gpu -- echo 'three at a time'
  tollgate run --wait 10s --max-hold 1h acc/7 acc/9 -- echo 'both or none'
  tollgate run --try --at-least 2s --max-hold 10m cron/x -- echo 'only once'";

/// What happens to the command when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM before the deadline, SIGKILL by the deadline.
    Term,
    /// SIGKILL by the deadline.
    Kill,
    /// Only a message.
    Ignore,
}
