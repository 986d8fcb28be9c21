//! `cargo xtask soak`: the same tests in large numbers, in a release build.

use std::time::{Duration, Instant};

use crate::pool::How;
use crate::report::{self, PartReport, Row};
use crate::{clients, needs, parts, pool, programs};

/// Tells the tests that this is a soak.
const SOAK: (&str, &str) = ("TOLLGATE_SOAK", "1");
/// How many sequences the engine is compared with its model for.
const MODEL: (&str, &str) = ("PROPTEST_CASES", "20000");
/// How long a test program may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(6 * 3600);

pub(crate) fn run(names: &[String]) -> Result<(), String> {
    let parts = parts::chosen(names)?;
    let started = Instant::now();
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    needs::install(&names)?;
    clients::install(&names)?;
    println!("building the tests");
    let packages: Vec<&str> = parts.iter().flat_map(|part| part.packages.iter().copied()).collect();
    let programs = programs::build(&packages, &["--quiet", "--release"])?;
    let mut rows = vec![Row::without_tests("building", started.elapsed())];
    let mut jobs = pool::jobs(&parts, &programs, needs::arguments());
    jobs.iter_mut().for_each(|job| job.set(&[SOAK, MODEL]));
    // One at a time: each uses all of the machine by itself.
    let reports = pool::run(&jobs, &How { at_a_time: 1, limit: PROGRAM_LIMIT });
    report::print_failures(&reports);
    rows.extend(reports.iter().map(PartReport::row));
    report::finish(&rows, started.elapsed())
}
