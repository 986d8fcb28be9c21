//! Seeds in small numbers; `cargo xtask simulate` runs them in large ones.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

use tollgate_simulator::{Mutant, World};

#[test]
fn no_seed_breaks_a_promise() {
    let (mut grants, mut starts) = (0, 0);
    for seed in 0..200 {
        match World::new(seed, None).run() {
            Ok(report) => {
                grants += report.grants;
                starts += report.starts;
            }
            Err((violation, report)) => panic!("seed {seed}: {violation}\n{}", report.trace.join("\n")),
        }
    }
    println!("200 seeds: {grants} grants, {starts} starts of the server");
    assert!(
        grants > 2_000 && starts > 2_000,
        "{grants} grants and {starts} starts are too few to say anything"
    );
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 17, 84] {
        let run = || World::new(seed, None).run().unwrap();
        let (first, second) = (run(), run());
        assert!(!first.trace.is_empty());
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn every_flaw_is_found() {
    println!("flaw | seed | what is broken");
    for mutant in Mutant::ALL {
        let found = (0..10_000).find_map(|seed| match World::new(seed, Some(mutant)).run() {
            Err((violation, _)) => Some((seed, violation)),
            Ok(_) => None,
        });
        let (seed, violation) = found.unwrap_or_else(|| panic!("{mutant:?} is not found in 10000 seeds"));
        println!("{mutant:?} | {seed} | {violation}");
    }
}
