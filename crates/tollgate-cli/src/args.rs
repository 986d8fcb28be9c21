//! What can be written on the command line. Each sub-command's own arguments are with the sub-command.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::acquire::AcquireArgs;
use crate::bench::BenchArgs;
use crate::break_lock::BreakArgs;
use crate::completions::CompletionsArgs;
use crate::doctor::DoctorArgs;
use crate::elect::ElectArgs;
use crate::extend::ExtendArgs;
use crate::fence_proxy::FenceProxyArgs;
use crate::inspect::InspectArgs;
use crate::leader::LeaderArgs;
use crate::ls::LsArgs;
use crate::man::ManArgs;
use crate::redlock_init::RedlockInitArgs;
use crate::release::ReleaseArgs;
use crate::run::RunArgs;
use crate::sql_schema::SqlSchemaArgs;
use crate::ttl::TtlArgs;
use crate::watch::WatchArgs;

/// Locks that other programs respect: one passes at a time, and every passage is numbered.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true, after_help = format!("Exit codes: {EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The variable of the environment that names the engine.
pub(crate) const URL: &str = "TOLLGATE_URL";

/// What scripts can tell apart.
pub(crate) const EXIT_CODES: &str = "\
0 when all went well; of run and elect, the command's own (128 + n for signal n, 126 and 127 as in a shell); 2 usage, bad name, bad URL; \
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
    Elect(ElectArgs),
    Leader(LeaderArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Ttl(TtlArgs),
    RedlockInit(RedlockInitArgs),
    FenceProxy(FenceProxyArgs),
    SqlSchema(SqlSchemaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Reads a command line.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    match Cli::try_parse_from(&words) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            parse_escaped(&words).unwrap_or(Err(error))
        }
        parsed => parsed,
    }
}

/// Reads `run [OPTIONS] -- NAME… -- COMMAND…`, as names need it that look like options; `None` if that is not what
/// it is.
fn parse_escaped(words: &[OsString]) -> Option<Result<Cli, clap::Error>> {
    let mut ends = (0..words.len()).filter(|at| words[*at] == "--");
    let (first, second) = (ends.next()?, ends.next()?);
    let names = words[first + 1..second].iter().map(|name| name.to_str().map(str::to_owned));
    let names = names.collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())?;
    // With a name in their place that looks like none.
    let plain = words[..first].iter().cloned().chain(["name".into()]).chain(words[second..].iter().cloned());
    match Cli::try_parse_from(plain) {
        Ok(Cli { command: Command::Run(run) }) => {
            Some(Ok(Cli { command: Command::Run(RunArgs { names, ..run }) }))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Which engine.
#[derive(Debug, Args)]
pub(crate) struct UrlArg {
    /// The engine: file:DIR, postgres://HOST, redis://HOST, etcd://HOST, zookeeper://HOST, redlock://HOST,HOST,HOST and more.
    ///
    /// file:DIR is for the processes of this host; file: alone keeps its files in $XDG_STATE_HOME/tollgate, or
    /// ~/.local/state/tollgate. One Redis is redis://HOST:PORT/DB, redis-sentinel://HOST,HOST/SERVICE or
    /// redis-cluster://HOST,HOST; encrypted they begin with rediss. A majority of independent Redises is
    /// redlock://HOST,HOST,HOST, encrypted redlocks://. The members of an etcd are etcd://HOST,HOST,HOST, encrypted
    /// etcds://, the servers of a ZooKeeper zookeeper://HOST,HOST,HOST/CHROOT, encrypted zookeepers://. A database is
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE, encrypted with ?sslmode=require.
    #[arg(long, value_name = "URL", env = URL, default_value = "file:", hide_env_values = true)]
    pub(crate) url: String,
}

/// How a lock is claimed.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClaimArgs {
    /// Give up after waiting this long (exit code 75). Without it, waits for ever.
    #[arg(long, value_name = "DURATION", value_parser = tollgate::parse_duration, conflicts_with = "try_once")]
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

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_that_look_like_options_can_be_written() {
        let run =
            |line: &str| match parse(line.split(' ').map(OsString::from).collect()).map(|cli| cli.command) {
                Ok(Command::Run(run)) => Some((run.names, run.command)),
                _ => None,
            };
        let read = |names: &[&str], command: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            Some((names, command.iter().map(OsString::from).collect::<Vec<_>>()))
        };
        assert_eq!(run("tollgate run --try -- -a --b -- c -d"), read(&["-a", "--b"], &["c", "-d"]));
        assert_eq!(run("tollgate run -- -a -- c -- d"), read(&["-a"], &["c", "--", "d"]));
        assert_eq!(run("tollgate run a -- c -- d"), read(&["a"], &["c", "--", "d"]));
        for wrong in ["run -- c", "run -- -- c", "run -a -- c", "run -- -a --", "acquire -- --"] {
            assert_eq!(run(&format!("tollgate {wrong}")), None, "{wrong}");
        }
        assert!(parse(["tollgate", "acquire", "--", "-a"].map(OsString::from).into()).is_ok());
    }
}
