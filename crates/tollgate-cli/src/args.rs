//! The command line: its sub-commands, and the arguments that several of them share. The arguments
//! of one sub-command are in that sub-command's module.

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
use crate::habits;
use crate::inspect::InspectArgs;
use crate::leader::LeaderArgs;
use crate::ls::LsArgs;
use crate::man::ManArgs;
use crate::redlock_init::RedlockInitArgs;
use crate::release::ReleaseArgs;
use crate::run::RunArgs;
use crate::serve::ServeArgs;
use crate::sql_schema::SqlSchemaArgs;
use crate::ttl::TtlArgs;
use crate::watch::WatchArgs;

/// Take, watch and break distributed locks; every grant carries a fencing token.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true, after_help = format!("Exit codes: {EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The exit codes, for the help and the manual.
pub(crate) const EXIT_CODES: &str = "\
0 success; of run and elect, the exit code of the command (128 + n for signal n, 126 and 127 as in a shell); 1 of leader: there is \
no leader; 2 usage error, invalid name, invalid URL; 69 engine unavailable; 70 unexpected error; 75 busy; 76 lock lost; 77 denied; \
78 bad configuration or unsupported.";

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
    Serve(ServeArgs),
    SqlSchema(SqlSchemaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Parses a command line.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let words = habits::url_behind_the_sub_command(words);
    let parsed = match Cli::try_parse_from(&words) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            parse_escaped(&words).unwrap_or(Err(error))
        }
        parsed => parsed,
    };
    parsed.map_err(|error| habits::explained(&words, &error).unwrap_or(error))
}

/// Parses `run [OPTIONS] -- NAME… -- COMMAND…`, the form for names that look like options. `None`
/// if the command line does not have this form.
fn parse_escaped(words: &[OsString]) -> Option<Result<Cli, clap::Error>> {
    let mut ends = (0..words.len()).filter(|at| words[*at] == "--");
    let (first, second) = (ends.next()?, ends.next()?);
    let names = words[first + 1..second].iter().map(|name| name.to_str().map(str::to_owned));
    let names = names.collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())?;
    // With a placeholder for the names, which does not look like an option.
    let plain = words[..first].iter().cloned().chain(["name".into()]).chain(words[second..].iter().cloned());
    match Cli::try_parse_from(plain) {
        Ok(Cli { command: Command::Run(run) }) => {
            Some(Ok(Cli { command: Command::Run(RunArgs { names, ..run }) }))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}

/// How a lock is claimed: waiting, mode, and the exit code for busy.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClaimArgs {
    /// Wait at most this long for the lock, then exit with code 75; a bare number is seconds.
    /// Without it, the command waits without a limit.
    #[arg(short, long, value_name = "DURATION", value_parser = seconds_or_duration, conflicts_with = "try_once")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: exit with code 75 at once if the lock is held.
    #[arg(short = 'n', long = "try", visible_alias = "nonblock")]
    pub(crate) try_once: bool,

    /// Take the lock in shared mode: many --shared holders at a time, or one exclusive holder.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,

    /// Take a permit of a semaphore with N permits: at most N holders at a time.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u32>,

    /// Exit with this code instead of 75 when the lock is busy.
    #[arg(long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
}

/// Parses a duration, or a bare number of seconds as `flock -w` takes it.
pub(crate) fn seconds_or_duration(text: &str) -> Result<Duration, String> {
    let is_number =
        text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(|c: char| c.is_ascii_digit());
    if is_number { tollgate::parse_duration(&format!("{text}s")) } else { tollgate::parse_duration(text) }
}

/// Parses a ttl, which must be longer than zero.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let zero = text.trim_start_matches(['0', '.']).is_empty() && !text.is_empty();
    match tollgate::parse_duration(text) {
        Ok(ttl) if !ttl.is_zero() => Ok(ttl),
        Err(error) if !zero => Err(error),
        _ => Err("a lock with a ttl of zero is lost at once; write for example --ttl 30s".to_owned()),
    }
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
    fn a_wait_may_be_a_number_of_seconds_and_a_ttl_of_nothing_is_refused() {
        assert_eq!(seconds_or_duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(seconds_or_duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds_or_duration("1m"), Ok(Duration::from_secs(60)));
        assert!(seconds_or_duration("five").is_err());
        assert_eq!(ttl("30s"), Ok(Duration::from_secs(30)));
        for zero in ["0", "0s", "0.0", "0ms"] {
            assert!(ttl(zero).unwrap_err().contains("--ttl 30s"), "{zero}");
        }
        assert!(ttl("30").unwrap_err().contains("30s"));
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
