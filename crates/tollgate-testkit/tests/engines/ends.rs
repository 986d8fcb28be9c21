//! However a test program ends, no engine outlives it. This binary, started again, is the program that ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use tollgate_testkit::engines::{self, Config, Engine, Kind};
use tollgate_testkit::subject::PATIENCE;

use crate::client::{ask, sql};
use crate::{every, for_every};

/// Says to the started binary which engine it is to start, and how it is to end.
const ASKED: &str = "TOLLGATE_TEST_ENDS";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = for_every("a_panic_leaves_no_engine_behind", |config| check(config, "panics"));
    trials.extend(for_every("a_test_program_killed_with_9_leaves_no_engine_behind", |config| {
        check(config, "is killed")
    }));
    trials
}

/// Starts engines and ends, if this binary was started for that.
pub(crate) fn run_if_asked() -> bool {
    let Ok(asked) = std::env::var(ASKED) else { return false };
    let (name, ending) = asked.split_once(' ').expect("the test says what and how");
    let (_, config) =
        every().into_iter().find(|(engine, _)| *engine == name).expect("the test names an engine");
    // As in a test: on a thread of its own.
    let test = std::thread::spawn({
        let ending = ending.to_owned();
        move || {
            let own = engines::private(&config).unwrap();
            let _busy = keep_busy(&config, &own);
            // Nothing drops this one.
            let shared = engines::shared(&Config::redis());
            for engine in [&own, shared] {
                let pids: Vec<_> = engine.pids().iter().map(u32::to_string).collect();
                println!("{} {}", engine.folder().display(), pids.join(" "));
            }
            println!();
            match ending.as_str() {
                "panics" => panic!("as it should"),
                _ => std::thread::sleep(PATIENCE * 10),
            }
        }
    });
    assert!(test.join().is_err());
    std::process::exit(101)
}

/// A PostgreSQL process that computes does not notice that its parent is gone.
fn keep_busy(config: &Config, engine: &Engine) -> Option<Child> {
    if config.kind() != Kind::Postgres {
        return None;
    }
    let mut endless = sql(config.kind(), engine.address(), "DO 'BEGIN LOOP END LOOP; END'");
    endless.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It ends with its connection, and the guardian finds it too.
    let client = endless.current_dir(engine.folder()).spawn().unwrap();
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'";
    until("the endless query runs", || {
        ask(&mut sql(config.kind(), engine.address(), busy)).as_deref() == Some("1")
    });
    Some(client)
}

fn check(config: &Config, ending: &str) {
    let (name, _) = every().into_iter().find(|(_, other)| other == config).expect("it is one of them");
    let mut program = Command::new(std::env::current_exe().unwrap())
        .env(ASKED, format!("{name} {ending}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    let started: Vec<(PathBuf, Vec<u32>)> =
        lines.take_while(|line| !line.is_empty()).map(|line| parse(&line)).collect();
    if ending == "is killed" {
        program.kill().unwrap();
    }
    let status = program.wait().unwrap();
    assert_eq!(started.len(), 2, "the program ended ({status}) before it had started its engines");
    for (folder, pids) in &started {
        assert!(!pids.is_empty());
        until(&format!("the processes {pids:?} in {folder:?} are gone"), || {
            !pids.iter().any(|pid| lives(*pid, folder))
        });
        until(&format!("{folder:?} is removed"), || !folder.exists());
    }
}

fn parse(line: &str) -> (PathBuf, Vec<u32>) {
    let mut words = line.split(' ');
    let folder = words.next().unwrap().into();
    (folder, words.map(|pid| pid.parse().unwrap()).collect())
}

/// Whether the process still works in its folder: another may have got its number meanwhile.
fn lives(pid: u32, folder: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "it never happened that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
