//! Commands and callers that make it hard: processes that will not be caught, odd signal dispositions, a
//! stderr that cannot be written.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Running, Sandbox, eventually, lives, text};
use rustix::process::{Pid, Signal, kill_process};

/// Compiles one of the programs in `tests/hostile`.
fn compile(sandbox: &Sandbox, name: &str) -> String {
    let source = format!("{}/tests/hostile/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let binary = sandbox.path(name);
    let compiled = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&binary)
        .arg(source)
        .status()
        .expect("there is a C compiler");
    assert!(compiled.success());
    binary.to_str().expect("temporary paths are text").to_owned()
}

#[test]
fn a_signal_ends_whatever_waits_for_a_disk_that_hangs() {
    let sandbox = Sandbox::new();
    assert!(sandbox.output(&["run", "x", "--", "true"]).status.success());
    let mut lease = Command::new(compile(&sandbox, "lease"));
    lease.arg(sandbox.path("locks/counters")).stdout(Stdio::piped());
    let mut lease = Running(lease.spawn().unwrap());
    let mut leased = [0; 7];
    lease.0.stdout.as_mut().unwrap().read_exact(&mut leased).unwrap();
    for arguments in [&["run", "--try", "x", "--", "true"][..], &["acquire", "x"], &["watch"]] {
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            let mut hangs = sandbox.start(arguments);
            hangs.wait_until_it_hears_signals();
            hangs.signal(signal);
            assert_eq!(hangs.code(), code, "{arguments:?}");
        }
    }
}

#[test]
fn a_chain_of_processes_that_fork_and_leave_is_caught() {
    let sandbox = Sandbox::new();
    let chain = compile(&sandbox, "chain");
    let mut holder = sandbox.start(&["run", "x", "--", &chain, "last"]);
    sandbox.wait_for("last");
    let killed = Instant::now();
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    let next = sandbox.output(&["run", "--wait", "15s", "x", "--", "cp", "last", "seen"]);
    assert_eq!(next.status.code(), Some(0), "the chain outran its hunters");
    assert!(killed.elapsed() < Duration::from_secs(10), "it took {:?}", killed.elapsed());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(sandbox.read("last"), sandbox.read("seen"), "the chain went on beside the next holder");
}

#[test]
fn a_process_without_its_first_thread_is_killed_too() {
    let sandbox = Sandbox::new();
    let headless = compile(&sandbox, "headless");
    let started = Instant::now();
    let mut holder = sandbox.start(&[
        "run",
        "--ttl",
        "2s",
        "--max-hold",
        "1s",
        "--on-lost",
        "kill",
        "x",
        "--",
        &headless,
        "pid",
    ]);
    let pid = sandbox.wait_for("pid");
    assert_eq!(holder.code(), 76);
    assert!(started.elapsed() < Duration::from_secs(8), "it took {:?}", started.elapsed());
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists());
}

#[test]
fn many_descendants_are_ended_quickly() {
    let sandbox = Sandbox::new();
    let script = "for i in $(seq 200); do sleep 300 & done; echo >ready; wait";
    let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", script]);
    sandbox.wait_for("ready");
    let killed = Instant::now();
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    assert_eq!(sandbox.output(&["run", "--wait", "15s", "x", "--", "true"]).status.code(), Some(0));
    assert!(killed.elapsed() < Duration::from_secs(5), "it took {:?}", killed.elapsed());
}

#[test]
fn a_caller_that_ignores_sigchld_changes_nothing() {
    let sandbox = Sandbox::new();
    let script = "trap '' CHLD; exec \"$0\" run x -- sh -c 'grep SigIgn /proc/self/status >ignored; exit 3'";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tollgate")]).env("TOLLGATE_URL", sandbox.url());
    let mut running =
        crate::support::Running(command.current_dir(sandbox.path("")).stdin(Stdio::null()).spawn().unwrap());
    assert_eq!(running.code(), 3);
}

#[test]
fn what_cannot_be_told_does_not_change_what_is_done() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(&["run", "x", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let busy = sandbox.tollgate(&["run", "--try", "x", "--", "true"]).stderr(full()).status().unwrap();
    assert_eq!(busy.code(), Some(75));
    let polite = "trap 'echo >asked; exit 0' TERM; while :; do sleep 0.01; done";
    let arguments = ["run", "--ttl", "2s", "--max-hold", "1s", "y", "--", "sh", "-c", polite];
    assert_eq!(sandbox.tollgate(&arguments).stderr(full()).status().unwrap().code(), Some(76));
    assert!(sandbox.path("asked").exists(), "it was killed without being asked");
    let listed = sandbox.tollgate(&["ls", "--json"]).stdout(full()).output().unwrap();
    assert_eq!(listed.status.code(), Some(69), "{}", text(&listed.stderr));
}

#[test]
fn the_guardians_variable_alone_makes_no_guardian() {
    let sandbox = Sandbox::new();
    for value in ["0", "1", "7", "x"] {
        let output = sandbox
            .tollgate(&["run", "x", "--", "echo", "ran"])
            .env("TOLLGATE_GUARDIAN", value)
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), "ran\n");
    }
}

#[test]
fn a_run_within_a_run_has_its_own_tokens() {
    let sandbox = Sandbox::new();
    let inner = format!(
        "{} run b c -- sh -c 'echo \"$TOLLGATE_NAME|$TOLLGATE_TOKEN|$TOLLGATE_TOKENS\"'",
        env!("CARGO_BIN_EXE_tollgate")
    );
    let output = sandbox.output(&["run", "--pass-url", "a", "--", "sh", "-c", &inner]);
    assert_eq!(text(&output.stdout), "||{\"b\":1,\"c\":1}\n");
}

#[test]
fn a_guardian_that_does_not_answer_is_replaced_by_the_end() {
    let sandbox = Sandbox::new();
    let mut holder =
        sandbox.start(&["run", "x", "--", "sh", "-c", "echo $PPID >guardian; echo $$ >pid; sleep 300"]);
    let pid = sandbox.wait_for("pid");
    let guardian = Pid::from_raw(sandbox.read("guardian").trim().parse().unwrap()).unwrap();
    kill_process(guardian, Signal::STOP).unwrap();
    assert_eq!(holder.code(), 70);
    assert!(holder.stderr().contains("does not answer"));
    assert!(!lives(&pid));
}

#[test]
fn what_a_command_left_behind_hears_signals() {
    let sandbox = Sandbox::new();
    let orphan = "trap 'echo >heard; exit 0' TERM; echo >left; while :; do sleep 0.01; done";
    let script = format!("sh -c \"{orphan}\" & echo $$ >pid; exit 4");
    let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", &script]);
    sandbox.wait_for("left");
    let command = sandbox.wait_for("pid");
    eventually("the command itself is gone", || (!lives(&command)).then_some(()));
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), 4);
    assert!(sandbox.path("heard").exists());
}

#[test]
fn a_stopped_command_hears_sigterm() {
    let sandbox = Sandbox::new();
    let script = "trap 'exit 6' TERM; echo $$ >pid; while :; do sleep 0.01; done";
    let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", script]);
    let pid = Pid::from_raw(sandbox.wait_for("pid").trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), 6);
}
