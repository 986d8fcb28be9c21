//! `tollgate bench`: what it prints, and what it leaves behind.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Sandbox, eventually};
use rustix::process::Signal;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("bench").args(arguments).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is in `folder`, whatever is in use.
fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_lock_takes_turns_with_a_plain_one_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().display());
    let report = json(&bench(&[&url, "--only", "own", "--rounds", "3", "--time", "100ms", "--json"]));
    let line = |who: &str| {
        let lines = report["lines"].as_array().unwrap();
        let mut found =
            lines.iter().filter(|line| line["contender"] == who && line["workload"] == "own name, 1 client");
        found.next().unwrap_or_else(|| panic!("no line of {who} in {report}")).clone()
    };
    let (ours, plain) = (line("tollgate"), line("flock + fdatasync"));
    assert_eq!(ours["rounds"], 3);
    assert_eq!(ours["ratio"], 1.0);
    assert!(ours["per_second"].as_f64().unwrap() > 0.0 && plain["p99_us"].as_f64().unwrap() > 0.0);
    assert_eq!(report["machine"]["pinned"], false);
    assert_eq!(files(folder.path()), ["counters", "locks", "version"]);
    assert!(files(&folder.path().join("locks")).is_empty(), "the locks' files are cleared away");
}

#[test]
fn an_interrupted_one_leaves_nothing_behind() {
    for (only, signal, code) in [
        ("own", Signal::INT, 130),
        ("one", Signal::TERM, 143),
        ("crowd", Signal::INT, 130),
        ("memory", Signal::TERM, 143),
    ] {
        let sandbox = Sandbox::new();
        let folder = sandbox.path("locks");
        let mut running = sandbox.start(&["bench", "--only", only, "--time", "60s"]);
        eventually("it measures", || {
            let plain = folder.exists() && files(&folder).iter().any(|name| name.starts_with("bench-plain-"));
            let locks = folder.join("locks");
            (plain && locks.exists() && !files(&locks).is_empty()).then_some(())
        });
        running.signal(signal);
        assert_eq!(running.code(), code, "{only}: {}", running.stderr());
        assert_eq!(files(&folder), ["counters", "locks", "version"], "{only}");
        assert!(files(&folder.join("locks")).is_empty(), "{only}: the locks' files are cleared away");
    }
}

#[test]
fn every_workload_runs_and_the_table_names_it() {
    let output = bench(&["memory:", "--rounds", "1", "--time", "20ms", "--pin", "0"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "own name, 1 client",
        "own names, 16 clients",
        "own names, 64 tasks on one connection",
        "one name, 16 clients",
        "one name, 1 waiter",
        "one name, 1000 waiters",
        "64 names in turn, 1 client",
        "a new name every time, 1 client",
        "many locks held",
        "pinned to cores [0]",
        "median of 1 rounds",
    ] {
        assert!(table.contains(words), "{words:?} is not in\n{table}");
    }
}

#[test]
fn what_cannot_be_measured_says_why() {
    for (arguments, code, hint) in [
        (["nonsense:", "--rounds", "1"], 2, "the known engines are"),
        (["memory:", "--pin", "9999"], 2, "is not there"),
        (["memory:", "--only", "everything"], 2, "possible values"),
        (["memory:", "--rounds", "0"], 2, "--rounds"),
        (["memory:", "--time", "0s"], 2, "longer than zero"),
        (["memory:", "--pin", "0,0"], 2, "core 0 twice"),
        (["file:/proc/nowhere", "--rounds", "1"], 78, "/proc/nowhere"),
    ] {
        let output = bench(&arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(hint), "{arguments:?}: {error}");
    }
}
