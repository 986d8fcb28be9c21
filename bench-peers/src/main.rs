//! `bench-peers ENGINE`: the locks people use today beside Tollgate's, on one engine, in one run.

mod booth;
mod engine;
mod peers;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tollgate_bench::{Contest, Failure, Machine, Report, Workload};

use engine::EngineName;

/// Measure other people's locks beside Tollgate's.
///
/// Starts the engine on a free port in a temporary folder, has everybody take turns at the workloads of
/// `tollgate bench`, and prints the median of each. Then each goes once more through a proxy that counts
/// connections, requests and bytes. Nothing is left running afterwards.
#[derive(Debug, Parser)]
struct Arguments {
    /// The engine to start.
    engine: EngineName,

    /// Only these workloads: own (names of their own), shared (64 tasks on one connection), one (16 clients
    /// on one name), crowd (1 to 1000 waiters), memory (per held lock).
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = ["own", "shared", "one", "crowd", "memory"])]
    only: Vec<String>,

    /// Only those whose name has this in it, for looking closer at one of them.
    #[arg(long, value_name = "WORD")]
    who: Option<String>,

    /// How many rounds each workload has.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u16,

    /// How long a round is.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = tollgate::parse_duration)]
    time: Duration,

    /// Stay on these cores, for example 0 or 0,1, with the engine.
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    pin: Vec<usize>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments).and_then(|report| print(&report, arguments.json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench-peers: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<Report, Failure> {
    // Before the engine starts, so that it stays on the same cores.
    let machine =
        if arguments.pin.is_empty() { Machine::here()? } else { Machine::pinned_to(&arguments.pin)? };
    eprintln!("starting {}", arguments.engine);
    let site = arguments.engine.start()?;
    let (mut entries, notes) = site.entries()?;
    if let Some(word) = &arguments.who {
        entries.retain(|entry| entry.name().contains(word.as_str()));
    }
    let only = &arguments.only;
    let chosen = |workload: &Workload| only.is_empty() || only.iter().any(|word| word == workload.group());
    let mut contest = Contest::new(entries, machine)
        .workloads(Workload::ALL.iter().copied().filter(chosen).collect())
        .rounds(arguments.rounds.into())
        .time(arguments.time);
    for note in notes {
        contest = contest.note(note);
    }
    contest.run()
}

fn print(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        print!("{}", report.table());
    }
    Ok(())
}
