//! What can be written on the command line. Each sub-command's own arguments are with the sub-command.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::acquire::AcquireArgs;
use crate::break_lock::BreakArgs;
use crate::completions::CompletionsArgs;
use crate::doctor::DoctorArgs;
use crate::duration;
use crate::extend::ExtendArgs;
use crate::inspect::InspectArgs;
use crate::ls::LsArgs;
use crate::man::ManArgs;
use crate::release::ReleaseArgs;
use crate::run::RunArgs;
use crate::ttl::TtlArgs;
use crate::watch::WatchArgs;

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
    Acquire(AcquireArgs),
    Extend(ExtendArgs),
    Release(ReleaseArgs),
    Ls(LsArgs),
    Inspect(InspectArgs),
    Watch(WatchArgs),
    Break(BreakArgs),
    Doctor(DoctorArgs),
    Ttl(TtlArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Which engine.
#[derive(Debug, Args)]
pub(crate) struct UrlArg {
    /// The engine: file:DIR for the processes of this host; file: alone keeps its files in
    /// $XDG_STATE_HOME/tollgate, or ~/.local/state/tollgate.
    #[arg(long, value_name = "URL", env = "TOLLGATE_URL", default_value = "file:", hide_env_values = true)]
    pub(crate) url: String,
}

/// How a lock is claimed.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClaimArgs {
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

    /// The exit code when the lock is busy, instead of 75.
    #[arg(long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
