//! `tollgate run --at-least`: a job that several start at about the same time runs once.

use std::time::{Duration, Instant};

use crate::support::{Running, Sandbox, eventually, is_holder, text, until_dead};
use rustix::process::Signal;

#[test]
fn a_quick_job_that_many_start_within_the_window_runs_once() {
    let sandbox = Sandbox::new();
    let job =
        ["run", "--try", "--at-least", "10m", "--max-hold", "10m", "job", "--", "sh", "-c", "echo >>ran"];
    // Some at once, and some when the first is long done: their clocks are late.
    let mut together: Vec<Running> = (0..4).map(|_| sandbox.start(&job)).collect();
    let mut codes: Vec<i32> = together.iter_mut().map(Running::code).collect();
    codes.extend((0..4).map(|_| sandbox.start(&job).code()));
    codes.sort_unstable();
    assert_eq!(codes, [0, 75, 75, 75, 75, 75, 75, 75]);
    assert_eq!(sandbox.read("ran").lines().count(), 1);
    let holders = sandbox.holders("job");
    assert!(holders.len() == 1 && is_holder(&holders[0]), "{holders:?}");
}

#[test]
fn the_lock_is_kept_as_long_as_was_asked_for_and_no_longer() {
    let sandbox = Sandbox::new();
    let started = Instant::now();
    assert_eq!(sandbox.start(&["run", "--at-least", "2s", "job", "--", "true"]).code(), 0);
    assert_eq!(sandbox.start(&["run", "job", "--", "true"]).code(), 0, "then the next one runs");
    assert!(started.elapsed() >= Duration::from_secs(2));
    eventually("nothing is left", || sandbox.holders("job").is_empty().then_some(()));
}

#[test]
fn run_returns_at_once_with_the_commands_own_code_and_keeps_every_lock() {
    let sandbox = Sandbox::new();
    let mut running = sandbox.start(&["run", "--at-least", "60s", "a", "b", "--", "sh", "-c", "exit 7"]);
    assert_eq!(running.code(), 7);
    let (a, b) = (sandbox.holders("a"), sandbox.holders("b"));
    assert_eq!((a.len(), &a), (1, &b), "one process keeps both");
    let seen = text(&sandbox.output(&["inspect", "a"]).stdout);
    assert!(seen.contains("command=sh with 2 arguments") && !seen.contains("exit 7"), "{seen}");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(a[0].parse().unwrap()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    until_dead(&a[0]);
    assert_eq!(sandbox.output(&["run", "--try", "a", "b", "--", "true"]).status.code(), Some(0));
}

#[test]
fn a_job_that_took_long_enough_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let output = sandbox.output(&["run", "--at-least", "50ms", "x", "--", "sleep", "0.2"]);
    assert!(output.status.success());
    assert_eq!(sandbox.holders("x"), Vec::<String>::new());
}

#[test]
fn a_lost_lock_and_a_command_that_never_ran_keep_nothing() {
    let sandbox = Sandbox::new();
    let late = ["run", "--at-least", "200ms", "--max-hold", "200ms", "x", "--", "sleep", "60"];
    assert_eq!(sandbox.output(&late).status.code(), Some(76));
    assert_eq!(sandbox.holders("x"), Vec::<String>::new());
    let missing = sandbox.output(&["run", "--at-least", "60s", "x", "--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert_eq!(sandbox.holders("x"), Vec::<String>::new());
    // A lock whose file is gone is lost.
    let script = "rm locks/locks/*; sleep 60";
    let removed = sandbox.output(&["run", "--at-least", "60s", "x", "--", "sh", "-c", script]);
    assert_eq!(removed.status.code(), Some(76), "{}", text(&removed.stderr));
    assert_eq!(sandbox.holders("x"), Vec::<String>::new());
}

#[test]
fn more_than_max_hold_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let output = sandbox.output(&["run", "--at-least", "2m", "--max-hold", "1m", "x", "--", "touch", "ran"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--max-hold"), "{}", text(&output.stderr));
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn a_killed_run_frees_the_lock_at_once() {
    let sandbox = Sandbox::new();
    let running =
        sandbox.start(&["run", "--at-least", "60s", "x", "--", "sh", "-c", "echo $$ >held; sleep 60"]);
    let command = sandbox.wait_for("held");
    running.signal(Signal::KILL);
    until_dead(&command);
    eventually("it is free", || sandbox.holders("x").is_empty().then_some(()));
}

#[test]
fn without_a_holder_run_itself_stays_until_the_time_is_over() {
    let sandbox = Sandbox::new();
    let binary = sandbox.copy_of_tollgate();
    // A binary that may not be executed any more cannot be started again as a holder.
    let start = |least: &str| {
        std::fs::set_permissions(&binary, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command =
            sandbox.bash("exec ./tollgate run --at-least \"$0\" x -- sh -c 'chmod 600 tollgate; exit 7'");
        command.arg(least).stderr(std::process::Stdio::piped());
        Running(command.spawn().unwrap())
    };
    let started = Instant::now();
    let mut stays = start("3s");
    assert_eq!(stays.code(), 7);
    assert!(started.elapsed() >= Duration::from_secs(3));
    let said = stays.stderr();
    assert!(said.contains("staying for"), "{said}");
    let mut stays = start("60s");
    eventually("the command is done", || {
        let mode = std::fs::metadata(&binary).unwrap().permissions();
        (std::os::unix::fs::PermissionsExt::mode(&mode) & 0o111 == 0).then_some(())
    });
    assert_eq!(sandbox.holders("x").len(), 1);
    stays.signal(Signal::TERM);
    assert_eq!(stays.code(), 7, "a signal ends the waiting, and the command had its own code");
    assert!(sandbox.holders("x").is_empty());
}
