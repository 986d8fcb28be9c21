//! `cargo xtask soak`: the same tests in large numbers, in a release build.

use std::time::Instant;

use crate::needs;
use crate::test::{chosen, finish, run_part};

/// How often each part runs.
const ROUNDS: usize = 10;

pub(crate) fn run(names: &[String]) -> Result<(), String> {
    needs::install()?;
    let mut summary = Vec::new();
    for part in chosen(names)? {
        for round in 1..=ROUNDS {
            println!("\n== {} (round {round} of {ROUNDS})", part.name);
            let began = Instant::now();
            let count = run_part(part, &["--release"], &mut Vec::new())?;
            summary.push((format!("{} {round}", part.name), began.elapsed(), count));
        }
    }
    finish(&summary)
}
