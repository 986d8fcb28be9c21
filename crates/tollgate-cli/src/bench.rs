//! `tollgate bench`: how fast locks are here.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tollgate::{Error, ErrorKind, Result};
use tollgate_bench::{Contender, Contest, Machine, Ours, PlainFile, Report, Workload};

use crate::exit::Exit;
use crate::tell;

/// Measure how fast locks are on an engine.
///
/// Takes and releases locks under names of its own that start with bench/, in rounds, and prints the median.
/// On file: a plain lock, flock and a counter brought to the disk, takes turns with it: the last column says
/// how many times as fast each is as tollgate.
///
/// The engine is really used: do not point it at one that others need just now.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// The engine: file:DIR, file: alone, or memory:.
    #[arg(value_name = "URL", env = "TOLLGATE_URL", default_value = "file:", hide_env_values = true)]
    url: String,

    /// Only these workloads: own (names of their own), shared (64 tasks on one connection), one (16 clients
    /// on one name), crowd (1 to 1000 waiters), memory (per held lock).
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = ["own", "shared", "one", "crowd", "memory"])]
    only: Vec<String>,

    /// How many rounds each workload has.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u16,

    /// How long a round is.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = tollgate::parse_duration)]
    time: Duration,

    /// Stay on these cores, for example 0 or 0,1. A wake from one core to another costs more than many a lock.
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    pin: Vec<usize>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate bench --only own --rounds 3 --time 200ms
  tollgate bench memory: --only one --rounds 1 --time 100ms --json";

pub(crate) async fn run(args: BenchArgs) -> Result<Exit> {
    let json = args.json;
    // It has a runtime of its own, with as many threads as there are cores.
    let measured = tokio::task::spawn_blocking(move || measure(&args)).await;
    let report = measured.map_err(|panic| {
        Error::new(ErrorKind::Unexpected, "the measurement did not come to its end").caused_by(panic)
    })??;
    if json {
        let text = serde_json::to_string(&report).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "the report cannot be written as JSON").caused_by(error)
        })?;
        tell::answer(&format!("{text}\n"))?;
    } else {
        tell::answer(&report.table())?;
    }
    Ok(Exit::OK)
}

fn measure(args: &BenchArgs) -> Result<Report> {
    let pin = |cores: &[usize]| if cores.is_empty() { Machine::here() } else { Machine::pinned_to(cores) };
    let machine = pin(&args.pin).map_err(|error| Error::invalid(error.to_string()))?;
    // What is wrong with the engine is told in our own words, before anything else touches it.
    let locks = tollgate::blocking::connect(&args.url)?;
    locks.lock(format!("bench/{}", std::process::id())).wait(Duration::from_secs(10)).acquire()?.release()?;
    locks.close();
    let mut contenders: Vec<Arc<dyn Contender>> = vec![Arc::new(Ours::new(&args.url))];
    if let Some(folder) = PlainFile::folder_of(&args.url)? {
        let plain = PlainFile::new(&folder).map_err(failed)?;
        contenders.push(Arc::new(plain));
    }
    let chosen =
        |workload: &Workload| args.only.is_empty() || args.only.iter().any(|word| word == workload.group());
    let workloads = Workload::ALL.iter().copied().filter(chosen).collect();
    let contest = Contest::new(contenders, machine);
    contest.workloads(workloads).rounds(args.rounds.into()).time(args.time).run().map_err(failed)
}

/// What went wrong in a lock of ours is an error of ours.
fn failed(failure: tollgate_bench::Failure) -> Error {
    match failure.downcast::<Error>() {
        Ok(error) => *error,
        Err(other) => Error::new(ErrorKind::Unavailable, "the measurement failed").caused_by(other),
    }
}
