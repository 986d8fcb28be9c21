//! `cargo xtask soak`: the same tests in large numbers, in a release build.

use std::time::Instant;

use crate::test::{How, SOAK_LIMIT, chosen, finish, run_part};
use crate::{clients, needs, programs};

/// Tells the tests that this is a soak.
const SOAK: (&str, &str) = ("TOLLGATE_SOAK", "1");
/// How many sequences the engine is compared with its model for.
const MODEL: (&str, &str) = ("PROPTEST_CASES", "20000");

pub(crate) fn run(names: &[String]) -> Result<(), String> {
    let parts = chosen(names)?;
    needs::install()?;
    clients::install(parts.iter().map(|part| part.name))?;
    let started = Instant::now();
    println!("building the tests");
    let packages: Vec<&str> = parts.iter().flat_map(|part| part.packages.iter().copied()).collect();
    let programs = programs::build(&packages, &["--quiet", "--profile", "soak"])?;
    let how = How { environment: &[SOAK, MODEL], limit: Some(SOAK_LIMIT) };
    let mut summary = Vec::new();
    for part in parts {
        println!("\n== {} ({:.0} s so far)", part.name, started.elapsed().as_secs_f64());
        let began = Instant::now();
        let count = run_part(part, &programs, &how, &mut Vec::new())?;
        summary.push((part.name.to_owned(), began.elapsed(), count));
    }
    finish(&summary)
}
