//! What happens to the command when `tollgate run`, its guardian or the command itself is killed or stopped.

use std::time::{Duration, Instant};

use crate::support::{Sandbox, eventually, lives, text, until_dead};
use rustix::process::{Signal, kill_process, test_kill_process};

/// A command with a child, and a grandchild in a session of its own, that writes all their pids.
const FAMILY: &str = "setsid sh -c 'echo $$ >>pids; sleep 300' & sh -c 'echo $$ >>pids; sleep 300' & echo $$ >>pids; \
                      until test $(wc -l <pids) = 3; do sleep 0.01; done; echo >ready; wait";

#[test]
fn killing_run_ends_the_command_and_lets_the_next_in_at_once() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", FAMILY]);
    sandbox.wait_for("ready");
    let mut next = sandbox.start(&[
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "cp pids seen; for p in $(cat pids); do ps -o pid= -p $p; done >alive; echo >in",
    ]);
    sandbox.wait_for_waiters(1);
    let killed = Instant::now();
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    assert_eq!(next.code(), 0);
    assert!(killed.elapsed() < Duration::from_secs(5), "it took {:?}", killed.elapsed());
    assert_eq!(sandbox.read("alive"), "", "the command ran beside the next holder");
    until_dead(&sandbox.read("pids"));
}

#[test]
fn a_stopped_run_lets_nobody_in_on_a_lock_that_does_not_expire() {
    let sandbox = Sandbox::new();
    let mut holder =
        sandbox.start(&["run", "--ttl", "300ms", "x", "--", "sh", "-c", "echo >held; sleep 1; echo >done"]);
    sandbox.wait_for("held");
    holder.signal(Signal::STOP);
    assert_eq!(sandbox.output(&["run", "--wait", "900ms", "x", "--", "true"]).status.code(), Some(75));
    sandbox.wait_for("done");
    assert_eq!(sandbox.output(&["run", "--try", "x", "--", "true"]).status.code(), Some(75));
    holder.signal(Signal::CONT);
    assert_eq!(holder.code(), 0);
    assert_eq!(sandbox.output(&["run", "--try", "x", "--", "true"]).status.code(), Some(0));
}

#[test]
fn killing_the_guardian_ends_everything() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", FAMILY]);
    sandbox.wait_for("ready");
    let pid = holder.0.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let guardian = children.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(rustix::process::Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
    assert_eq!(holder.code(), 70);
    assert!(holder.stderr().contains("guardian"));
    assert!(!sandbox.read("pids").lines().any(lives), "something lives on");
    assert_eq!(sandbox.output(&["run", "--try", "x", "--", "true"]).status.code(), Some(0));
}

#[test]
fn signals_reach_the_command() {
    for (signal, name) in
        [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1")]
    {
        let sandbox = Sandbox::new();
        let script =
            format!("trap 'echo {name} >got; exit 5' {name}; echo >held; while :; do sleep 0.01; done");
        let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", &script]);
        sandbox.wait_for("held");
        holder.signal(signal);
        assert_eq!(holder.code(), 5);
        assert_eq!(sandbox.read("got").trim(), name);
    }
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_in_time() {
    let sandbox = Sandbox::new();
    let deaf = "trap '' TERM; echo $$ >>pids; setsid sh -c 'echo $$ >>pids; sleep 300' & \
                until test $(wc -l <pids) = 2; do sleep 0.01; done; echo >held; while :; do sleep 0.01; done";
    let started = Instant::now();
    let mut holder =
        sandbox.start(&["run", "--ttl", "2s", "--max-hold", "1500ms", "x", "--", "sh", "-c", deaf]);
    assert_eq!(holder.code(), 76);
    assert!(started.elapsed() < Duration::from_secs(8), "it took {:?}", started.elapsed());
    assert!(holder.stderr().contains("max-hold"));
    assert!(!sandbox.read("pids").lines().any(lives), "something lives on");
    // The same when somebody sends SIGTERM to tollgate, after the time it was told to wait.
    let sandbox = Sandbox::new();
    let mut holder = sandbox.start(&["run", "--kill-after", "300ms", "x", "--", "sh", "-c", deaf]);
    sandbox.wait_for("held");
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), 137);
    assert!(!sandbox.read("pids").lines().any(lives), "something lives on");
}

#[test]
fn max_hold_asks_first_unless_told_otherwise() {
    let polite = "trap 'echo >asked; exit 0' TERM; while :; do sleep 0.01; done";
    let sandbox = Sandbox::new();
    let code = |on_lost: &str| {
        let arguments =
            ["run", "--ttl", "2s", "--max-hold", "1s", "--on-lost", on_lost, "x", "--", "sh", "-c", polite];
        sandbox.start(&arguments).code()
    };
    assert_eq!(code("term"), 76);
    assert!(sandbox.path("asked").exists());
    std::fs::remove_file(sandbox.path("asked")).unwrap();
    assert_eq!(code("kill"), 76);
    assert!(!sandbox.path("asked").exists(), "it was asked although it should be killed");
    let ignored =
        ["run", "--max-hold", "100ms", "--on-lost", "ignore", "x", "--", "sh", "-c", "sleep 1; exit 3"];
    assert_eq!(sandbox.start(&ignored).code(), 3);
    let ignored = ["run", "--max-hold", "100ms", "--on-lost", "ignore", "x", "--", "sleep", "1"];
    let mut outlived = sandbox.start(&ignored);
    assert_eq!(outlived.code(), 76);
    assert!(outlived.stderr().contains("max-hold"));
}

#[test]
fn a_short_max_hold_leaves_most_of_it_to_the_command() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.start(&["run", "--max-hold", "3s", "x", "--", "sleep", "1"]).code(), 0);
}

#[test]
fn the_lock_is_held_until_the_last_descendant_is_gone() {
    let sandbox = Sandbox::new();
    let script = "setsid sh -c 'until test -e go; do sleep 0.01; done; echo >left' & echo >started";
    let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", script]);
    sandbox.wait_for("started");
    assert_eq!(sandbox.output(&["run", "--wait", "300ms", "x", "--", "true"]).status.code(), Some(75));
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(holder.code(), 0);
    assert!(sandbox.path("left").exists(), "run returned before a descendant was gone");
}

#[test]
fn a_signal_while_waiting_gives_the_place_up() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(&["run", "x", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    let mut waiter = sandbox.start(&["run", "x", "--", "touch", "ran"]);
    sandbox.wait_for_waiters(1);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.code(), 143);
    sandbox.wait_for_waiters(0);
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn the_command_is_in_the_terminals_foreground_and_hears_its_keys() {
    let sandbox = Sandbox::new();
    let script = "ps -o tpgid=,pgid= -p $$ >groups; trap 'echo >interrupted; exit 4' INT; echo >held; while :; do sleep 0.01; done";
    let binary = env!("CARGO_BIN_EXE_tollgate");
    let command = format!("{binary} run x -- sh -c \"{}\"", script.replace('$', "\\$"));
    let mut terminal = std::process::Command::new("env")
        .args(["--default-signal", "script", "-qec", &command, "/dev/null"])
        .env("TOLLGATE_URL", sandbox.url())
        .current_dir(sandbox.path(""))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    sandbox.wait_for("held");
    let groups = sandbox.read("groups");
    let groups: Vec<_> = groups.split_whitespace().collect();
    assert_eq!(groups[0], groups[1], "the command is not in the foreground");
    let mut keyboard = terminal.stdin.take().unwrap();
    std::io::Write::write_all(&mut keyboard, b"\x03").unwrap();
    let status = eventually("the terminal's program ends", || terminal.try_wait().unwrap());
    assert_eq!(status.code(), Some(4));
    assert!(sandbox.path("interrupted").exists());
}

#[test]
fn killing_run_between_start_and_command_leaves_nothing() {
    for delay in 0..12 {
        let sandbox = Sandbox::new();
        let mut holder = sandbox.start(&["run", "x", "--", "sh", "-c", "echo $$ >>pids; sleep 300"]);
        std::thread::sleep(Duration::from_millis(delay));
        holder.0.kill().unwrap();
        holder.0.wait().unwrap();
        // Whatever had been started: when the next is in, it is gone.
        let next = sandbox.output(&[
            "run",
            "x",
            "--",
            "sh",
            "-c",
            "for p in $(cat pids 2>/dev/null); do ps -o pid= -p $p; done; true",
        ]);
        assert_eq!(text(&next.stdout), "", "the command ran beside the next holder");
        assert_eq!(next.status.code(), Some(0));
    }
}

#[test]
fn a_killed_tollgate_leaves_no_process() {
    let sandbox = Sandbox::new();
    let mut holder =
        sandbox.start(&["run", "x", "--", "sh", "-c", "echo $PPID >guardian; echo >held; sleep 300"]);
    sandbox.wait_for("held");
    let guardian = sandbox.read("guardian");
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    let pid = rustix::process::Pid::from_raw(guardian.trim().parse().unwrap()).unwrap();
    eventually("the guardian is gone", || test_kill_process(pid).is_err().then_some(()));
}
