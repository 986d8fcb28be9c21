//! `tollgate run` as scripts use it: order, environment, exit codes, names.

use std::time::{Duration, Instant};

use crate::support::{Sandbox, text};

#[test]
fn fifty_processes_count_to_fifty_with_rising_tokens() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("f"), "0\n").unwrap();
    let script = "n=$(cat f); sleep 0.01; echo $((n+1)) >f; echo $TOLLGATE_TOKEN >>tokens";
    let mut running: Vec<_> =
        (0..50).map(|_| sandbox.start(&["run", "c", "--", "sh", "-c", script])).collect();
    for process in &mut running {
        assert_eq!(process.code(), 0);
    }
    assert_eq!(sandbox.read("f"), "50\n", "an update was lost");
    let tokens: Vec<u64> = sandbox.read("tokens").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tokens.len(), 50);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn those_who_wait_are_served_in_order() {
    let sandbox = Sandbox::new();
    let mut holder =
        sandbox.start(&["run", "c", "--", "sh", "-c", "echo >held; until test -e go; do sleep 0.01; done"]);
    sandbox.wait_for("held");
    let mut waiting = Vec::new();
    for number in 0..8 {
        let script = format!("echo {number} >>served");
        waiting.push(sandbox.start(&["run", "c", "--", "sh", "-c", &script]));
        sandbox.wait_for_waiters(number + 1);
    }
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(holder.code(), 0);
    for process in &mut waiting {
        assert_eq!(process.code(), 0);
    }
    assert_eq!(
        sandbox.read("served").split_whitespace().collect::<Vec<_>>(),
        ["0", "1", "2", "3", "4", "5", "6", "7"]
    );
}

#[test]
fn the_command_finds_its_name_and_tokens() {
    let sandbox = Sandbox::new();
    let print = "echo \"$TOLLGATE_NAME|$TOLLGATE_TOKEN|$TOLLGATE_TOKENS\"; env | grep -c GUARDIAN";
    let one = sandbox.output(&["run", "a b", "--", "sh", "-c", print]);
    assert_eq!(text(&one.stdout), "a b|1|{\"a b\":1}\n0\n");
    let two = sandbox.output(&["run", "b", "a b", "--", "sh", "-c", print]);
    assert_eq!(text(&two.stdout), "||{\"a b\":2,\"b\":1}\n0\n");
}

#[test]
fn names_that_no_command_could_be_told_of_are_refused_before_they_are_taken() {
    let sandbox = Sandbox::new();
    let run = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("{number:0>500}")).collect();
        let mut arguments = vec!["run"];
        arguments.extend(names.iter().map(String::as_str));
        arguments.extend(["--", "sh", "-c", "test ${#TOLLGATE_TOKENS} -gt 120000"]);
        sandbox.output(&arguments)
    };
    let fits = run(245);
    assert_eq!(fits.status.code(), Some(0), "{}", text(&fits.stderr));
    let too_long = run(300);
    assert_eq!(too_long.status.code(), Some(2), "{}", text(&too_long.stderr));
    assert!(text(&too_long.stderr).contains("take fewer locks"), "{}", text(&too_long.stderr));
    let longest = (245..=300).rev().find(|count| run(*count).status.code() != Some(2)).unwrap();
    assert_eq!(run(longest).status.code(), Some(0), "what is not refused can be run");
}

#[test]
fn the_commands_own_code_is_passed_on() {
    let sandbox = Sandbox::new();
    let code = |command: &[&str]| sandbox.output(&[&["run", "x", "--"], command].concat()).status.code();
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "exit 255"]), Some(255));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["sh", "-c", "kill -15 $$"]), Some(143));
    assert_eq!(code(&["/no/such/program"]), Some(127));
    assert_eq!(code(&["/etc/passwd"]), Some(126));
    let missing = sandbox.output(&["run", "x", "--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("no-such-program"), "{}", text(&missing.stderr));
}

#[test]
fn a_held_lock_is_busy_at_once_or_after_the_wait() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(&["run", "x", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    let started = Instant::now();
    let tried = sandbox.output(&["run", "--try", "x", "--", "touch", "ran"]);
    assert_eq!(tried.status.code(), Some(75));
    assert!(started.elapsed() < Duration::from_secs(1), "--try took {:?}", started.elapsed());
    assert!(text(&tried.stderr).contains("held by pid"), "{}", text(&tried.stderr));
    let waited = sandbox.output(&["run", "--wait", "100ms", "x", "--", "touch", "ran"]);
    assert_eq!(waited.status.code(), Some(75));
    let chosen = sandbox.output(&["run", "--try", "--conflict-exit-code", "9", "x", "--", "touch", "ran"]);
    assert_eq!(chosen.status.code(), Some(9));
    let set = sandbox.output(&["run", "--try", "a", "x", "--", "touch", "ran"]);
    assert_eq!(set.status.code(), Some(75), "a set with one busy lock is busy");
    assert!(!sandbox.path("ran").exists(), "the command ran without the lock");
    assert_eq!(
        sandbox.output(&["run", "--try", "a", "--", "true"]).status.code(),
        Some(0),
        "nothing of the set is held"
    );
}

#[test]
fn readers_share_and_semaphores_count() {
    let sandbox = Sandbox::new();
    let hold = |number: usize| format!("echo >held{number}; sleep 60");
    let _reader = sandbox.start(&["run", "--shared", "r", "--", "sh", "-c", &hold(1)]);
    sandbox.wait_for("held1");
    assert_eq!(sandbox.output(&["run", "--try", "--shared", "r", "--", "true"]).status.code(), Some(0));
    assert_eq!(sandbox.output(&["run", "--try", "r", "--", "true"]).status.code(), Some(75));
    let _first = sandbox.start(&["run", "--permits", "2", "s", "--", "sh", "-c", &hold(2)]);
    let _second = sandbox.start(&["run", "--permits", "2", "s", "--", "sh", "-c", &hold(3)]);
    sandbox.wait_for("held2");
    sandbox.wait_for("held3");
    assert_eq!(
        sandbox.output(&["run", "--try", "--permits", "2", "s", "--", "true"]).status.code(),
        Some(75)
    );
    assert_eq!(sandbox.output(&["run", "--permits", "0", "s", "--", "true"]).status.code(), Some(2));
}

#[test]
fn odd_names_are_locks_of_their_own() {
    let sandbox = Sandbox::new();
    let longest = "x".repeat(512);
    let names = ["a", "A", "a/b", "a%2Fb", "../x", ".", "..", " ", "größe", "🔒", &longest];
    let mut running = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let script = format!("echo >held{number}; sleep 60");
        running.push(sandbox.start(&["run", "--try", name, "--", "sh", "-c", &script]));
        sandbox.wait_for(&format!("held{number}"));
    }
    assert_eq!(
        std::fs::read_dir(sandbox.path("")).unwrap().count(),
        names.len() + 2,
        "nothing was made outside its place"
    );
}

#[test]
fn what_cannot_be_a_name_or_url_is_a_usage_error_that_says_why() {
    let sandbox = Sandbox::new();
    let too_long = "x".repeat(513);
    for (name, says) in [("", "empty"), ("a\nb", "control"), (&*too_long, "512")] {
        let output = sandbox.output(&["run", name, "--", "touch", "ran"]);
        assert_eq!(output.status.code(), Some(2), "{name:?}");
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    for (url, says) in [
        ("nats://x", "file:DIR"),
        ("/tmp", "file:/tmp"),
        ("file:x?y=1", "\"y\""),
        ("file://host/x", "file:DIR"),
    ] {
        let output = sandbox.output(&["run", "--url", url, "x", "--", "touch", "ran"]);
        assert_eq!(output.status.code(), Some(2), "{url:?}");
        assert!(text(&output.stderr).contains(says), "{url}: {}", text(&output.stderr));
    }
    for wrong in
        [&["run", "x"][..], &["run", "--ttl", "30", "x", "--", "true"], &["run", "--", "true"], &["nonsense"]]
    {
        assert_eq!(sandbox.output(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let memory = sandbox.output(&["run", "--url", "memory:", "x", "--", "touch", "ran"]);
    assert_eq!(memory.status.code(), Some(78));
    let zero = sandbox.output(&["run", "--ttl", "1ms", "x", "--", "touch", "ran"]);
    assert_eq!(zero.status.code(), Some(2));
    assert!(text(&zero.stderr).contains("10ms"), "the range is named: {}", text(&zero.stderr));
    assert!(!sandbox.path("ran").exists());
}
