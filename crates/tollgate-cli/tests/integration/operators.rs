//! `tollgate watch` and `tollgate break`: watching locks, and breaking them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{PATIENCE, Running, Sandbox, eventually, full_pipe, lives, state, text, until_dead};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running `watch` that has already printed an event of a lock that was taken for this purpose.
fn watch(sandbox: &Sandbox, arguments: &[&str]) -> (Running, Receiver<String>) {
    let mut command = sandbox.tollgate(&[&["watch"], arguments].concat());
    let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = channel();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    let running = Running(child);
    eventually("it watches", || {
        let grant = text(&sandbox.output(&["acquire", "jobs/first", "--ttl", "60s"]).stdout);
        let told = receiver.recv_timeout(Duration::from_millis(300)).is_ok();
        assert_eq!(sandbox.output(&["release", &grant]).status.code(), Some(0));
        told.then_some(())
    });
    (running, receiver)
}

/// The next line that is not about the lock that showed that `watch` runs.
fn next(lines: &Receiver<String>) -> String {
    let line = || lines.recv_timeout(PATIENCE).expect("it tells of something");
    std::iter::repeat_with(line).find(|line| !line.contains("jobs/first")).unwrap()
}

#[test]
fn events_are_told_a_line_each_in_their_order() {
    let sandbox = Sandbox::new();
    let (mut running, lines) = watch(&sandbox, &["jobs/", "--json"]);
    let grant = text(&sandbox.output(&["acquire", "jobs/a", "--ttl", "60s"]).stdout);
    let next = || serde_json::from_str::<Value>(&next(&lines)).unwrap();
    let token = serde_json::from_str::<Value>(&grant).unwrap()["token"].clone();
    let expect = |event: Value, what: &str| {
        assert_eq!(
            [&event["name"], &event["token"], &event["what"]],
            [&Value::from("jobs/a"), &token, &what.into()]
        );
        assert!(event["at_ms"].as_u64().unwrap() > 1_700_000_000_000, "{event}");
        assert!(event["holder"]["pid"].as_u64().unwrap() > 0, "{event}");
    };
    expect(next(), "granted");
    assert_eq!(sandbox.output(&["acquire", "other", "--ttl", "60s"]).status.code(), Some(0));
    assert_eq!(sandbox.output(&["release", &grant]).status.code(), Some(0));
    // And no other's.
    expect(next(), "ended");
    running.signal(Signal::INT);
    assert_eq!(running.code(), 0, "watching ends well when it is interrupted");
}

#[test]
fn people_get_words_and_sigterm_ends_it() {
    let sandbox = Sandbox::new();
    let (mut running, lines) = watch(&sandbox, &[]);
    assert_eq!(sandbox.output(&["acquire", "x", "--ttl", "60s"]).status.code(), Some(0));
    let line = next(&lines);
    let (time, rest) = line.split_once("  ").unwrap();
    assert!(time.len() == 13 && time.ends_with('Z'), "{line}");
    assert!(rest.starts_with("granted   x  token 1  pid "), "{line}");
    running.signal(Signal::TERM);
    assert_eq!(running.code(), 0);
}

#[test]
fn a_reader_that_goes_away_ends_it_without_waiting_for_an_event() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.tollgate(&["watch"]);
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    drop(running.0.stdout.take());
    assert_eq!(running.code(), 0);
    assert_eq!(running.stderr(), "");
}

#[test]
fn a_reader_that_does_not_read_cannot_keep_it_from_ending() {
    let sandbox = Sandbox::new();
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 0), (Signal::HUP, 129)] {
        let (_reader, full) = full_pipe();
        let mut running = Running(sandbox.tollgate(&["watch"]).stdout(full).spawn().unwrap());
        eventually("it has something to tell", || {
            let grant = text(&sandbox.output(&["acquire", "x", "--ttl", "60s"]).stdout);
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(sandbox.output(&["release", &grant]).status.code(), Some(0));
            running.writes_in_vain().then_some(())
        });
        running.signal(signal);
        assert_eq!(running.code(), code);
    }
}

#[test]
fn a_holder_that_listens_is_broken_and_the_lock_is_free() {
    let sandbox = Sandbox::new();
    let grant = text(&sandbox.output(&["acquire", "x", "--ttl", "60s"]).stdout);
    let holder = sandbox.holders("x").remove(0);
    let broken = sandbox.output(&["break", "--yes", "x"]);
    assert_eq!(broken.status.code(), Some(0), "{}", text(&broken.stderr));
    assert!(text(&broken.stdout).starts_with("x: revoked, pid "), "{}", text(&broken.stdout));
    until_dead(&holder);
    assert_eq!(sandbox.sockets(), 0);
    assert_eq!(sandbox.output(&["release", &grant]).status.code(), Some(76), "the script hears of it");
    let free = sandbox.output(&["break", "--yes", "x"]);
    assert_eq!((free.status.code(), text(&free.stdout)), (Some(0), "x: not held\n".to_owned()));
}

#[test]
fn a_command_that_runs_under_a_broken_lock_is_ended() {
    let sandbox = Sandbox::new();
    let mut running = sandbox.start(&["run", "x", "--", "sh", "-c", "echo $$ >held; exec sleep 60"]);
    let command = sandbox.wait_for("held");
    assert_eq!(sandbox.output(&["break", "--yes", "x"]).status.code(), Some(0));
    assert_eq!(running.code(), 76);
    until_dead(&command);
}

#[test]
fn a_holder_that_does_not_leave_is_pending_and_named() {
    let sandbox = Sandbox::new();
    assert!(sandbox.output(&["acquire", "x", "--ttl", "60s"]).status.success());
    let holder = sandbox.holders("x").remove(0);
    let pid = Pid::from_raw(holder.parse().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let pending = sandbox.output(&["break", "--yes", "x"]);
    assert_eq!(pending.status.code(), Some(75));
    let said = text(&pending.stdout);
    assert!(said.contains("pending") && said.contains(&format!("end process {holder}")), "{said}");
    assert_eq!(
        sandbox.output(&["run", "--try", "x", "--", "true"]).status.code(),
        Some(75),
        "it is still held"
    );
    kill_process(pid, Signal::CONT).unwrap();
    until_dead(&holder);
}

#[test]
fn a_stopped_waiter_that_is_in_everybodys_way_is_named() {
    let sandbox = Sandbox::new();
    let grant = text(&sandbox.output(&["acquire", "x", "--ttl", "60s"]).stdout);
    let mut waits = sandbox.start(&["run", "x", "--", "true"]);
    sandbox.wait_for_waiters(1);
    waits.signal(Signal::STOP);
    let pid = waits.pid().as_raw_pid().to_string();
    eventually("it is stopped", || (state(&pid) == Some('T')).then_some(()));
    assert_eq!(sandbox.output(&["release", &grant]).status.code(), Some(0));
    for arguments in
        [&["run", "--try", "x", "--", "true"][..], &["acquire", "--try", "x"], &["break", "--yes", "x"]]
    {
        let output = sandbox.output(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(75), "{arguments:?}: {said}");
        let named = format!("it has no holder; the first waiter is pid {pid} on");
        assert!(said.contains(&named) && said.contains("continue or end it"), "{arguments:?}: {said}");
    }
    waits.signal(Signal::CONT);
    assert_eq!(waits.code(), 0);
}

#[test]
fn one_of_several_holders_can_be_broken() {
    let sandbox = Sandbox::new();
    let grants = [(); 2].map(|()| {
        let output = sandbox.output(&["acquire", "x", "--shared", "--ttl", "60s"]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["token"].to_string()
    });
    let other = sandbox.output(&["break", "--yes", "x", "--token", "99"]);
    assert_eq!((other.status.code(), text(&other.stdout)), (Some(75), String::new()));
    let said = text(&other.stderr);
    assert!(said.contains("not held with token 99, but held by pid"), "{said}");
    assert!(said.contains(&format!("token {}", grants[0])) && said.contains("1 more"), "{said}");
    assert_eq!(sandbox.output(&["break", "--yes", "x", "--token", "0"]).status.code(), Some(2));
    assert_eq!(sandbox.holders("x").len(), 2);
    let one = sandbox.output(&["break", "--yes", "x", "--token", &grants[0], "--json"]);
    let one: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(
        (&one[0]["outcome"], one[0]["holder"]["token"].to_string()),
        (&"revoked".into(), grants[0].clone())
    );
    assert_eq!(sandbox.holders("x").len(), 1);
    let rest = sandbox.output(&["break", "--yes", "x", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&rest.stdout).unwrap().as_array().unwrap().len(), 1);
    assert_eq!(text(&sandbox.output(&["break", "--yes", "x", "--json"]).stdout), "[]\n");
}

#[test]
fn nobody_is_broken_unasked() {
    let sandbox = Sandbox::new();
    assert!(sandbox.output(&["acquire", "x", "--ttl", "60s"]).status.success());
    let holder = sandbox.holders("x").remove(0);
    let refused = sandbox.output(&["break", "x"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--yes"), "{}", text(&refused.stderr));
    // The answers come from a file: `script` reads them as if somebody typed them.
    let ask = |answer: &str| {
        let mut shell = sandbox.bash("script -qec 'tollgate break x; echo code $?' /dev/null");
        std::fs::write(sandbox.path("answer"), format!("{answer}\n")).unwrap();
        let typed = std::fs::File::open(sandbox.path("answer")).unwrap();
        text(&shell.stdin(typed).output().unwrap().stdout)
    };
    let no = ask("n");
    assert!(no.contains("held by pid") && no.contains("code 75"), "{no}");
    assert!(lives(&holder));
    let yes = ask("y");
    assert!(yes.contains("revoked") && yes.contains("code 0"), "{yes}");
    until_dead(&holder);
}
