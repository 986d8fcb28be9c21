//! Many waiters in several processes: whoever is killed among them is passed over, and nobody else is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::*;
use tollgate_core::{Backend, Mode, Release};

const PROCESSES: usize = 5;
const WAITERS: usize = 60;

fn tokens(said: &str) -> Vec<u64> {
    said.split(' ').map(|token| token.parse().unwrap()).collect()
}

#[test]
fn hundreds_of_waiters_survive_the_death_of_some_in_their_middle() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    let mut helpers: Vec<_> = (0..PROCESSES).map(|_| Helper::start(dir.path())).collect();
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        for (at, helper) in helpers.iter_mut().enumerate() {
            helper.tell(&format!("crowd a {WAITERS}"));
            until("they wait", async || counts(&backend, "a").await == (1, (at + 1) * WAITERS)).await;
        }
        helpers.remove(2).kill();
        assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
    });
    let mut last = 0;
    let mut all = BTreeSet::new();
    for mut helper in helpers {
        let tokens = tokens(&helper.hear());
        assert_eq!(tokens.len(), WAITERS);
        assert!(tokens.iter().min().unwrap() > &last, "those who came first were served first");
        last = *tokens.iter().max().unwrap();
        all.extend(tokens);
        helper.finish();
    }
    assert_eq!(all.len(), (PROCESSES - 1) * WAITERS, "no token twice");
    assert_eq!(run(look(&backend, "a")), None);
    assert!(run(is_free(&backend, "a", Mode::Exclusive)));
}

/// Every mode at once, from several processes, over and over: no two who exclude each other overlap.
#[test]
fn a_mixture_of_modes_never_overlaps() {
    let dir = tempfile::tempdir().unwrap();
    let marks = tempfile::tempdir().unwrap();
    let mut helpers: Vec<_> = (0..6).map(|_| Helper::start(dir.path())).collect();
    for (helper, mode) in helpers.iter_mut().zip(["x", "s", "s", "2", "2", "2"]) {
        helper.tell(&format!("mix a {mode} 60 {}", marks.path().display()));
    }
    for mut helper in helpers {
        assert_eq!(helper.hear(), "mixed");
        helper.finish();
    }
}

/// Killed at any instant, also inside the gate or while the list moves, a process breaks nothing.
#[test]
fn processes_killed_at_any_instant_break_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut survivors: Vec<_> = (0..3).map(|_| Helper::start(dir.path())).collect();
    for survivor in &mut survivors {
        survivor.tell("churn a 150");
    }
    for victim in 0..40_u64 {
        let mut helper = Helper::start(dir.path());
        helper.tell("churn a 100000");
        std::thread::sleep(Duration::from_micros(3000 + victim * 7919 % 20_000));
        helper.kill();
    }
    let mut all = BTreeSet::new();
    for mut survivor in survivors {
        let tokens = tokens(&survivor.hear());
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        all.extend(tokens);
        survivor.finish();
    }
    assert_eq!(all.len(), 450, "no token twice");
    let backend = open(dir.path());
    assert!(run(is_free(&backend, "a", Mode::Exclusive)));
}
