//! What can be written on the command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::duration;

/// Locks that other programs respect: one passes at a time, and every passage is numbered.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: the command's own (128 + n for signal n, 126 and 127 as in a shell); 2 usage, bad name, bad URL; \
69 engine unavailable; 70 unexpected; 75 busy; 76 lock lost; 77 denied; 78 bad configuration or unsupported.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Ls(LsArgs),
    Inspect(InspectArgs),
}

/// Which engine.
#[derive(Debug, Args)]
pub(crate) struct UrlArg {
    /// The engine: file:DIR for the processes of this host; file: alone keeps its files in
    /// $XDG_STATE_HOME/tollgate, or ~/.local/state/tollgate.
    #[arg(long, value_name = "URL", env = "TOLLGATE_URL", default_value = "file:", hide_env_values = true)]
    pub(crate) url: String,
}

/// Run a command while holding a lock, and release it when the command is done.
///
/// Waits until the lock is free. The lock is released when the command and everything it started are gone.
/// If the lock is lost first, the command is ended before anybody else can get in; and if tollgate itself is
/// killed, the command is killed too.
///
/// The command finds TOLLGATE_NAME, TOLLGATE_TOKEN (the fencing token: a later holder's is larger) and
/// TOLLGATE_TOKENS (a JSON object, name to token) in its environment.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) url: UrlArg,

    /// How long the lock outlives a holder that vanishes, on engines where locks expire. Renewed every third
    /// of it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    /// Give up after waiting this long (exit code 75). Without it, waits for ever.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "try_once")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait at all (exit code 75 if the lock is held).
    #[arg(long = "try")]
    pub(crate) try_once: bool,

    /// Share the lock with other --shared holders: many readers, or one who holds it alone.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,

    /// Let N in at a time: a semaphore.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u32>,

    /// End the command after holding the lock this long (exit code 76).
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// What to do with the command when the lock is about to be lost: SIGTERM and then SIGKILL by the
    /// deadline, SIGKILL alone, or nothing but a message.
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// Kill the command if it has not ended this long after a SIGTERM that was sent to tollgate.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub(crate) kill_after: Duration,

    /// The exit code when the lock is busy, instead of 75.
    #[arg(long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,

    /// The lock; several names are taken all or nothing, in an order that cannot deadlock.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,

    /// The command and its arguments, after --.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  tollgate run nightly-report -- echo 'one at a time'
  tollgate run --try deploy -- sh -c 'echo passage $TOLLGATE_TOKEN'
  tollgate run --permits 3 gpu -- echo 'three at a time'
  tollgate run --wait 10s --max-hold 1h accounts/7 accounts/9 -- echo 'both or none'";

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

/// List the locks that are held or waited for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tollgate ls\n  tollgate ls accounts/ --json")]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) url: UrlArg,

    /// Print one JSON array.
    #[arg(long)]
    pub(crate) json: bool,

    /// Only names that start with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

/// Show who holds a lock and who waits for it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate inspect nightly-report\n  tollgate inspect nightly-report --json"
)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) url: UrlArg,

    /// Print JSON; null if nobody holds the lock or waits for it.
    #[arg(long)]
    pub(crate) json: bool,

    /// The lock.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
