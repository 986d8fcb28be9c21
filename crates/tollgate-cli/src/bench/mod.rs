//! `tollgate bench`: how fast an engine grants and releases locks.

mod stoppable;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tollgate::{Error, ErrorKind, Locks, Result};
use tollgate_bench::{Contender, Contest, Machine, Ours, PlainFile, Report, Workload};

use crate::engine_url::EngineArg;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::tell;
use stoppable::{Stop, Stoppable};

/// Measure how fast an engine grants and releases locks.
///
/// Takes and releases locks under names of its own, which start with bench/, in rounds, and prints
/// the median. Measures every engine: file, memory, redis, rediss, redis-sentinel, redis-cluster,
/// redlock, etcd, zookeeper, postgres, mysql, mariadb. On file: a plain lock, flock and a counter
/// that is synced to the disk, takes turns with Tollgate: the last column says how many times as
/// fast as Tollgate each of them is.
///
/// The engine really executes the requests: do not measure an engine that other programs need at
/// that time. Redis remembers the last token of each name for a week: a bench leaves about ten
/// thousand small keys behind, named {lock:bench/…}:fence.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    engine: EngineArg,

    /// Run only these workloads: own (each client has its own names), shared (64 tasks on one
    /// connection), one (16 clients on one name), crowd (1 to 1000 waiters), memory (bytes per held
    /// lock).
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = ["own", "shared", "one", "crowd", "memory"])]
    only: Vec<String>,

    /// The number of rounds of each workload.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// The length of a round.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = some_time)]
    time: Duration,

    /// Run on these cores only, for example 0 or 0,1. To wake a thread on another core can cost
    /// more than the lock.
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

/// How long a stopped measurement may take to end. A workload that sleeps through its round does
/// not notice the stop.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How long the release of its locks may take: the locks of a crowd are held until the whole crowd
/// is queued.
const RELEASES_WITHIN: Duration = Duration::from_secs(20);

fn some_time(text: &str) -> Result<Duration, String> {
    match tollgate::parse_duration(text) {
        Ok(time) if time.is_zero() => Err("a round must be longer than zero".to_owned()),
        parsed => parsed,
    }
}

pub(crate) async fn run(args: BenchArgs) -> Result<Exit> {
    check_pins(&args.pin)?;
    let mut signals = Signals::listen()?;
    let (json, url) = (args.json, args.engine.resolve()?);
    let measured_url = url.clone();
    let interruption = Interruption::default();
    let interrupted = interruption.clone();
    // The measurement has a runtime of its own, with as many threads as there are cores.
    let mut measuring = tokio::task::spawn_blocking(move || measure(&args, &measured_url, &interruption));
    let measured = tokio::select! {
        measured = &mut measuring => measured,
        signal = signals.next() => {
            tokio::select! {
                () = interrupted.end(measuring, &url) => {}
                // A second signal ends the command without the cleanup.
                _ = signals.next() => {}
            }
            return Ok(Exit::of_signal(signal));
        }
    };
    let report = measured.map_err(|panic| {
        Error::new(ErrorKind::Unexpected, "the measurement did not finish").caused_by(panic)
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

fn check_pins(cores: &[usize]) -> Result<()> {
    let twice = cores.iter().enumerate().find(|(place, core)| cores[..*place].contains(core));
    twice.map_or(Ok(()), |(_, core)| Err(Error::invalid(format!("--pin names core {core} twice"))))
}

/// What is needed to end a running measurement and leave nothing behind.
#[derive(Clone, Default)]
struct Interruption {
    stop: Stop,
    /// The folder of the plain lock, once it exists.
    plain: Arc<OnceLock<PathBuf>>,
}

impl Interruption {
    /// Ends the measurement.
    async fn end<T>(&self, measuring: JoinHandle<T>, url: &str) {
        self.stop.stop();
        let _ = tokio::time::timeout(ENDS_WITHIN, measuring).await;
        self.clear(url).await;
    }

    /// Removes what a stopped measurement has left, whether or not it has ended.
    async fn clear(&self, url: &str) {
        if let Ok(locks) = tollgate::connect(url).await {
            let _ = tokio::time::timeout(RELEASES_WITHIN, until_released(&locks)).await;
            crate::take::close(&locks).await;
        }
        if let Some(folder) = self.plain.get() {
            remove(folder);
        }
    }
}

/// Waits until none of our own locks is in use. Listing a lock that is not in use removes its
/// remains.
async fn until_released(locks: &Locks) {
    let own = format!("bench/{}/", std::process::id());
    while locks.list(&own).any(|lock| std::future::ready(lock.is_ok())).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes `folder`. Repeats it, because a stopped measurement may add a file meanwhile.
fn remove(folder: &Path) {
    const ATTEMPTS: usize = 3;
    for _ in 0..ATTEMPTS {
        let _ = std::fs::remove_dir_all(folder);
        if !folder.exists() {
            return;
        }
    }
}

fn measure(args: &BenchArgs, url: &str, interruption: &Interruption) -> Result<Report> {
    let pin = |cores: &[usize]| if cores.is_empty() { Machine::here() } else { Machine::pinned_to(cores) };
    let machine = pin(&args.pin).map_err(|error| Error::invalid(error.to_string()))?;
    // An engine that does not work is reported by our own error, before the benchmark uses it.
    let locks = tollgate::blocking::connect(url)?;
    locks.lock(format!("bench/{}", std::process::id())).wait(Duration::from_secs(10)).acquire()?.release()?;
    locks.close();
    let stop = || interruption.stop.clone();
    let ours = Stoppable::new(Ours::new(url), stop());
    let mut contenders: Vec<Arc<dyn Contender>> = vec![Arc::new(ours)];
    if let Some(folder) = PlainFile::folder_of(url)? {
        let plain = PlainFile::new(&folder).map_err(failed)?;
        interruption.plain.get_or_init(|| plain.folder().to_owned());
        contenders.push(Arc::new(Stoppable::new(plain, stop())));
    }
    let chosen =
        |workload: &Workload| args.only.is_empty() || args.only.iter().any(|word| word == workload.group());
    let workloads = Workload::ALL.iter().copied().filter(chosen).collect();
    let contest = Contest::new(contenders, machine);
    contest.workloads(workloads).rounds(args.rounds.into()).time(args.time).run().map_err(failed)
}

/// A failure of the benchmark as an error: ours as it is, any other wrapped.
fn failed(failure: tollgate_bench::Failure) -> Error {
    match failure.downcast::<Error>() {
        Ok(error) => *error,
        Err(other) => Error::new(ErrorKind::Unavailable, "the measurement failed").caused_by(other),
    }
}
