//! Runs seeds, or every mutant until it is found.

use std::process::ExitCode;

use tollgate_simulator::{Mutant, World};

const HELP: &str = "\
simulate [--seeds N] [--seed S] [--mutants]

  --seeds N    runs the seeds 0 to N - 1 (1000 unless told otherwise), and stops at the first that breaks a promise
  --seed S     runs one seed and prints its trace
  --mutants    runs every mutant until it is found, 10000 seeds at most, and prints a table";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--seed", seed] => number(seed).map_or_else(usage, one),
        ["--seeds", seeds] => number(seeds).map_or_else(usage, all),
        ["--mutants"] => mutants(),
        [] => all(1000),
        _ => usage(),
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn usage() -> ExitCode {
    eprintln!("{HELP}");
    ExitCode::from(2)
}

fn one(seed: u64) -> ExitCode {
    let (report, violation) = match World::new(seed, None).run() {
        Ok(report) => (report, None),
        Err((violation, report)) => (report, Some(violation)),
    };
    report.trace.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}: {} grants, {} starts", report.grants, report.starts);
    match violation {
        Some(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn all(seeds: u64) -> ExitCode {
    let (mut grants, mut starts) = (0, 0);
    for seed in 0..seeds {
        match World::new(seed, None).run() {
            Ok(report) => {
                grants += report.grants;
                starts += report.starts;
            }
            Err(_) => return one(seed),
        }
        if (seed + 1) % 1000 == 0 {
            println!("{} seeds: {grants} grants, {starts} starts of the server, no promise broken", seed + 1);
        }
    }
    println!("{seeds} seeds: {grants} grants, {starts} starts of the server, no promise broken");
    ExitCode::SUCCESS
}

fn mutants() -> ExitCode {
    let mut all_found = true;
    for mutant in Mutant::ALL {
        let found = (0..10_000).find_map(|seed| match World::new(seed, Some(mutant)).run() {
            Err((violation, _)) => Some((seed, violation)),
            Ok(_) => None,
        });
        match found {
            Some((seed, violation)) => println!("{mutant:?} | seed {seed} | {violation}"),
            None => {
                all_found = false;
                println!("{mutant:?} | not found in 10000 seeds");
            }
        }
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
