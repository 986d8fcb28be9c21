//! `cargo xtask test`: installs and builds what the tests need, runs their programs side by side, and counts.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::pool::How;
use crate::report::{self, PartReport, Row};
use crate::stall::Stalls;
use crate::{again, clients, needs, parts, pool, programs};

/// How long a test program may take: twice what the longest needs beside compilers on two cores.
const PROGRAM_LIMIT: Duration = Duration::from_secs(8 * 60);
/// How many test programs run at a time for each core. Most of their time they wait for something to end.
const PROGRAMS_PER_CORE: usize = 2;
/// And how many at most: each starts engines and has tests of its own side by side.
const MOST_PROGRAMS: usize = 8;

pub(crate) fn run(names: &[String]) -> Result<(), String> {
    let parts = parts::chosen(names)?;
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    let started = Instant::now();
    if !needs::is_root() {
        // It can only say what is missing, and that is better said before the build.
        needs::install(&names)?;
    }
    println!("building the tests, and installing what they need");
    let (programs, mut rows) = std::thread::scope(|scope| {
        // Mostly it waits for the network and the disk, while the build needs the processor.
        let installing = scope.spawn(|| {
            needs::install(&names)?;
            clients::install(&names)?;
            Ok::<_, String>(Row::without_tests("installing", started.elapsed()))
        });
        // On a terminal cargo shows how far it is.
        let flags: &[&str] = if std::io::stderr().is_terminal() { &[] } else { &["--quiet"] };
        let programs = programs::build(&[], flags);
        let built = Row::without_tests("building", started.elapsed());
        let installed = installing.join().expect("installing says what went wrong")?;
        Ok::<_, String>((programs?, vec![built, installed]))
    })?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = pool::jobs(&parts, &programs, needs::arguments());
    // Engines have their data there.
    let folder = std::env::temp_dir();
    let stalls = Stalls::watch(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut reports = pool::run(
        &jobs,
        &How { at_a_time: (PROGRAMS_PER_CORE * cores).min(MOST_PROGRAMS), limit: PROGRAM_LIMIT },
    );
    again::run(&mut reports, &jobs, &stalls);
    let mut mutants: Vec<String> = reports.iter().flat_map(PartReport::mutants).collect();
    mutants.sort();
    report::print_mutants(&mutants);
    report::print_failures(&reports);
    report::print_passed_again(&reports, &stalls);
    rows.extend(reports.iter().map(PartReport::row));
    report::finish(&rows, started.elapsed())
}
