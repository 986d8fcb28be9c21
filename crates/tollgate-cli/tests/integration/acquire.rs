//! `tollgate acquire`, `extend` and `release`: a lock in a script's hands, kept by a holder process.

use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::support::{Running, Sandbox, eventually, full_pipe, is_holder, lives, text, until_dead};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Takes `x` and gives the grant and the holder's pid.
fn acquire(sandbox: &Sandbox, ttl: &str) -> (String, String) {
    let output = sandbox.output(&["acquire", "x", "--ttl", ttl]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let grant = text(&output.stdout);
    assert_eq!(grant.lines().count(), 1, "{grant}");
    let holders = sandbox.holders("x");
    assert_eq!(holders.len(), 1, "{holders:?}");
    assert!(is_holder(&holders[0]), "those who look are told which process to stop");
    (grant, holders[0].clone())
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn is_free(sandbox: &Sandbox, name: &str) -> bool {
    code(&sandbox.output(&["run", "--try", name, "--", "true"])) == 0
}

fn signal(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
}

fn deadline(grant: &str) -> u64 {
    let grant: Value = serde_json::from_str(grant).unwrap();
    grant["deadline"]["boottime_ns"].as_u64().unwrap()
}

fn boottime() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// The processes that were left behind for a lock of this name, which must be a name of this test alone.
fn left_behind(name: &str) -> Vec<String> {
    let wanted = format!("tollgate-holder\0{name}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().into_string().ok());
    pids.filter(|pid| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted.as_bytes())
            && lives(pid)
    })
    .collect()
}

#[test]
fn a_script_takes_and_releases_a_lock_and_nothing_is_left_running() {
    let sandbox = Sandbox::new();
    let script = r#"
        G=$(tollgate acquire x --ttl 60s) || exit 1
        tollgate inspect x --json >held
        tollgate run --try x -- true; echo $?
        tollgate release <<<"$G"; echo $?
        tollgate inspect x
        tollgate release <<<"$G"; echo $?
        tollgate extend <<<"$G"; echo $?"#;
    let output = sandbox.bash(script).output().unwrap();
    assert_eq!(text(&output.stdout), "75\n0\nx: free\n76\n76\n", "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("cannot release \"x\": the lock is lost"), "{said}");
    let held: Value = serde_json::from_str(&sandbox.read("held")).unwrap();
    assert!(!lives(&held["holders"][0]["details"]["pid"].to_string()), "release waits for its end");
    assert_eq!(sandbox.sockets(), 0);
}

#[test]
fn a_grant_says_what_is_true() {
    let sandbox = Sandbox::new();
    let before = boottime();
    let (grant, _) = acquire(&sandbox, "60s");
    let after = boottime();
    assert!((before + 60_000_000_000..=after + 60_000_000_000).contains(&deadline(&grant)));
    let json: Value = serde_json::from_str(&grant).unwrap();
    let seen: Value = serde_json::from_slice(&sandbox.output(&["inspect", "x", "--json"]).stdout).unwrap();
    assert_eq!(json["token"], seen["holders"][0]["token"]);
    assert_eq!((&json["name"], &json["ttl_ms"]), (&Value::from("x"), &Value::from(60_000)));
    let owner = json["owner"].as_str().unwrap();
    assert!(!json["handle"].as_str().unwrap().contains(owner), "the owner id is a secret");
    assert!(!seen.to_string().contains(owner));
    assert_eq!(code(&sandbox.output(&["release", &grant])), 0, "a grant may be an argument, too");
}

#[test]
fn when_the_ttl_is_over_the_lock_is_free_and_nothing_runs() {
    let sandbox = Sandbox::new();
    let (grant, holder) = acquire(&sandbox, "2s");
    until_dead(&holder);
    assert!(boottime() >= deadline(&grant), "it was held until its deadline");
    assert!(is_free(&sandbox, "x"));
    assert_eq!(sandbox.sockets(), 0);
    assert_eq!(code(&sandbox.output(&["release", &grant])), 76);
    assert_eq!(code(&sandbox.output(&["extend", &grant])), 76);
}

#[test]
fn an_extended_lock_outlives_its_first_ttl() {
    let sandbox = Sandbox::new();
    let (first, holder) = acquire(&sandbox, "3s");
    let output = sandbox.output(&["extend", "--ttl", "60s", &first]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let second = text(&output.stdout);
    assert!(deadline(&second) > deadline(&first) + 50_000_000_000);
    eventually("the first deadline has passed", || (boottime() > deadline(&first)).then_some(()));
    assert!(!is_free(&sandbox, "x"));
    assert_eq!(code(&sandbox.output(&["extend", "--ttl", "1ms", &second])), 2, "as long as an engine allows");
    let shorter = sandbox.output(&["extend", "--ttl", "200ms", &second]);
    assert_eq!(code(&shorter), 0, "it may be shorter, too");
    until_dead(&holder);
    assert!(boottime() >= deadline(&text(&shorter.stdout)));
}

#[test]
fn acquiring_waits_gives_up_and_shares_as_run_does() {
    let sandbox = Sandbox::new();
    let (grant, _) = acquire(&sandbox, "60s");
    let busy = sandbox.output(&["acquire", "--try", "x"]);
    assert_eq!(code(&busy), 75);
    assert!(text(&busy.stderr).contains("held by pid") && busy.stdout.is_empty());
    assert_eq!(code(&sandbox.output(&["acquire", "--wait", "50ms", "x"])), 75);
    assert_eq!(code(&sandbox.output(&["acquire", "--try", "--conflict-exit-code", "9", "x"])), 9);
    let mut waits = sandbox.tollgate(&["acquire", "x"]).stdout(Stdio::piped()).spawn().unwrap();
    sandbox.wait_for_waiters(1);
    assert_eq!(code(&sandbox.output(&["release", &grant])), 0);
    assert!(waits.wait().unwrap().success());
    let readers = [(); 2].map(|()| sandbox.output(&["acquire", "--shared", "r", "--meta", "job=a=b"]));
    assert!(readers.iter().all(|reader| code(reader) == 0));
    assert_eq!(sandbox.holders("r").len(), 2);
    assert!(text(&sandbox.output(&["inspect", "r"]).stdout).contains("job=a=b"));
    assert_eq!(code(&sandbox.output(&["acquire", "--permits", "1", "p"])), 0);
    assert_eq!(code(&sandbox.output(&["acquire", "--try", "--permits", "1", "p"])), 75);
}

#[test]
fn a_signal_while_waiting_leaves_nothing_in_the_queue() {
    let sandbox = Sandbox::new();
    let _held = acquire(&sandbox, "60s");
    let mut waits = sandbox.start(&["acquire", "x"]);
    sandbox.wait_for_waiters(1);
    waits.signal(Signal::TERM);
    assert_eq!(waits.code(), 143);
    sandbox.wait_for_waiters(0);
}

#[test]
fn a_killed_holder_is_a_lost_lock() {
    let sandbox = Sandbox::new();
    let (grant, holder) = acquire(&sandbox, "60s");
    signal(&holder, Signal::KILL);
    until_dead(&holder);
    assert!(is_free(&sandbox, "x"), "the kernel frees it at once");
    assert_eq!(sandbox.sockets(), 1, "its socket is left");
    assert_eq!(code(&sandbox.output(&["extend", &grant])), 76);
    assert_eq!(code(&sandbox.output(&["release", &grant])), 76);
}

#[test]
fn a_holder_whose_folder_was_removed_is_out_of_reach_but_not_lost() {
    let sandbox = Sandbox::new();
    let (grant, holder) = acquire(&sandbox, "60s");
    std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    for command in ["extend", "release"] {
        let output = sandbox.output(&[command, &grant]);
        assert_eq!(code(&output), 69, "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("tollgate break"), "{}", text(&output.stderr));
    }
    assert!(!is_free(&sandbox, "x"));
    assert_eq!(code(&sandbox.output(&["break", "--yes", "x"])), 0);
    until_dead(&holder);
    assert!(is_free(&sandbox, "x"), "what it says to do helps");
}

#[test]
fn a_stopped_holder_is_unavailable_and_named() {
    let sandbox = Sandbox::new();
    let (grant, holder) = acquire(&sandbox, "60s");
    signal(&holder, Signal::STOP);
    let silent = sandbox.output(&["extend", &grant]);
    assert_eq!(code(&silent), 69);
    assert!(text(&silent.stderr).contains(&format!("process {holder}")), "{}", text(&silent.stderr));
    assert!(!is_free(&sandbox, "x"));
    signal(&holder, Signal::CONT);
    assert_eq!(code(&sandbox.output(&["release", &grant])), 0);
    assert!(!lives(&holder));
}

#[test]
fn a_holder_that_slept_through_its_deadline_extends_nothing() {
    let sandbox = Sandbox::new();
    let (grant, holder) = acquire(&sandbox, "2s");
    signal(&holder, Signal::STOP);
    eventually("the deadline has passed", || (boottime() > deadline(&grant)).then_some(()));
    let asks = sandbox.tollgate(&["extend", "--ttl", "60s", &grant]).stdout(Stdio::piped()).spawn().unwrap();
    signal(&holder, Signal::CONT);
    assert_eq!(code(&asks.wait_with_output().unwrap()), 76);
    until_dead(&holder);
}

#[test]
fn a_holder_that_is_asked_to_end_releases() {
    let sandbox = Sandbox::new();
    let (grant, holder) = acquire(&sandbox, "60s");
    signal(&holder, Signal::TERM);
    until_dead(&holder);
    assert_eq!(sandbox.sockets(), 0, "it ended in good order");
    assert!(is_free(&sandbox, "x"));
    assert_eq!(code(&sandbox.output(&["release", &grant])), 76);
}

#[test]
fn a_grant_that_cannot_be_printed_is_released() {
    let sandbox = Sandbox::new();
    let name = sandbox.path("full").display().to_string();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for stdout in [Stdio::from(full), Stdio::from(closed)] {
        let output = sandbox.tollgate(&["acquire", &name]).stdout(stdout).output().unwrap();
        assert_eq!(code(&output), 69);
        assert!(text(&output.stderr).contains("print the grant"), "{}", text(&output.stderr));
        assert!(is_free(&sandbox, &name));
        assert_eq!((left_behind(&name), sandbox.sockets()), (vec![], 0));
    }
}

#[test]
fn a_signal_ends_an_acquire_whose_grant_nobody_reads() {
    let sandbox = Sandbox::new();
    let name = sandbox.path("unread").display().to_string();
    for (ends, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let (_reader, full) = full_pipe();
        let running = sandbox.tollgate(&["acquire", &name, "--ttl", "60s"]).stdout(full).spawn();
        let mut running = Running(running.unwrap());
        eventually("it prints", || running.writes_in_vain().then_some(()));
        running.signal(ends);
        assert_eq!(running.code(), code);
        assert!(is_free(&sandbox, &name), "nobody got the grant");
        assert_eq!((left_behind(&name), sandbox.sockets()), (vec![], 0));
    }
}

#[test]
fn a_grant_whose_time_is_over_is_not_printed() {
    let sandbox = Sandbox::new();
    let (mut reader, full) = full_pipe();
    let mut acquire = sandbox.tollgate(&["acquire", "x", "--ttl", "500ms"]);
    let mut running = Running(acquire.stdout(full).stderr(Stdio::piped()).spawn().unwrap());
    drop(acquire);
    assert_eq!(running.code(), 76);
    let said = running.stderr();
    assert!(said.contains("longer --ttl"), "{said}");
    let mut printed = String::new();
    std::io::Read::read_to_string(&mut reader, &mut printed).unwrap();
    assert_eq!(printed.trim_matches('.'), "");
    assert!(is_free(&sandbox, "x"));
}

#[test]
fn a_grant_that_nobody_can_get_is_released() {
    let sandbox = Sandbox::new();
    let output = sandbox.bash("tollgate acquire x >&-; echo $?").output().unwrap();
    assert_eq!(text(&output.stdout), "69\n");
    assert!(text(&output.stderr).contains("stdout is closed"), "{}", text(&output.stderr));
    assert!(is_free(&sandbox, "x"));
    let thrown_away = sandbox.bash("tollgate acquire x >/dev/null").status().unwrap();
    assert!(thrown_away.success(), "to hold it for the ttl may be all that is wanted");
    assert!(!is_free(&sandbox, "x"));
}

#[test]
fn an_acquire_that_is_killed_at_any_moment_leaves_no_lock_that_nobody_ends() {
    let sandbox = Sandbox::new();
    let name = sandbox.path("killed").display().to_string();
    let acquire = || {
        let mut acquire = sandbox.tollgate(&["acquire", &name, "--ttl", "400ms"]);
        acquire.stdout(Stdio::piped()).spawn().unwrap()
    };
    let started = Instant::now();
    assert!(acquire().wait_with_output().unwrap().status.success());
    let step = started.elapsed() / 50;
    eventually("it is free", || is_free(&sandbox, &name).then_some(()));
    let (mut early, mut printed) = (0, 0);
    // Later and later, until it was surely alive through everything it does, however slow the machine is.
    for round in 0.. {
        let mut running = acquire();
        std::thread::sleep(step * round);
        let _ = running.kill();
        let is_printed = !running.wait_with_output().unwrap().stdout.is_empty();
        *if is_printed { &mut printed } else { &mut early } += 1;
        // A child that was only just born still looks like its parent, so the lock is asked first.
        eventually("it is free", || is_free(&sandbox, &name).then_some(()));
        eventually("nothing runs", || left_behind(&name).is_empty().then_some(()));
        if printed == 3 {
            break;
        }
    }
    assert!(early > 0, "it was never killed in time");
    assert_eq!(sandbox.sockets(), 0);
}

#[test]
fn a_holder_keeps_nothing_of_its_surroundings_in_use() {
    let sandbox = Sandbox::new();
    let script =
        "exec 7>other; mkdir elsewhere; cd elsewhere; tollgate acquire x --url file:../locks --ttl 60s";
    let output = sandbox.bash(script).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let holder = sandbox.holders("x").remove(0);
    let proc = std::path::Path::new("/proc").join(&holder);
    assert_eq!(std::fs::read_link(proc.join("cwd")).unwrap(), std::path::Path::new("/"));
    let open: Vec<_> = std::fs::read_dir(proc.join("fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .map(|target| target.display().to_string())
        .collect();
    assert!(!open.iter().any(|target| target.contains("other")), "{open:?}");
    assert!(!open.iter().any(|target| target.starts_with("pipe:")), "{open:?}");
    let stat = std::fs::read_to_string(proc.join("stat")).unwrap();
    let session = stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap();
    assert_eq!(session, holder, "it has a session of its own");
    assert_eq!(std::fs::read_to_string(proc.join("comm")).unwrap(), "tollgate-holder\n", "ps knows it");
    let release = sandbox.tollgate(&["release", &text(&output.stdout)]).current_dir("/").output().unwrap();
    assert_eq!(code(&release), 0, "from anywhere");
}

#[test]
fn a_run_around_a_script_waits_for_what_the_script_left_behind() {
    let sandbox = Sandbox::new();
    let script = "tollgate acquire inner --ttl 700ms >grant";
    let mut command = sandbox.bash(&format!("tollgate run --pass-url outer -- bash -c '{script}'"));
    let mut running = crate::support::Running(command.stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(running.code(), 0);
    assert!(boottime() >= deadline(&sandbox.read("grant")));
    assert!(sandbox.holders("inner").is_empty() && sandbox.holders("outer").is_empty());
}

#[test]
fn a_terminal_that_goes_away_takes_no_lock_with_it() {
    let sandbox = Sandbox::new();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", "bash -ic 'tollgate acquire x --ttl 60s >g'", "/dev/null"]);
    let mut shell = sandbox.bash("exec \"$@\"");
    shell.arg("bash").arg(terminal.get_program()).args(terminal.get_args()).stdout(Stdio::null());
    assert!(shell.status().unwrap().success());
    let holder = sandbox.holders("x").remove(0);
    assert!(lives(&holder));
    assert_eq!(code(&sandbox.output(&["release", sandbox.read("g").trim()])), 0);
    let hint = sandbox.bash("script -qec 'tollgate release' /dev/null").output().unwrap();
    assert!(text(&hint.stdout).contains("no grant was given"), "{}", text(&hint.stdout));
}

#[test]
fn what_is_no_grant_is_a_usage_error_and_a_forged_one_does_nothing() {
    let sandbox = Sandbox::new();
    let (grant, _) = acquire(&sandbox, "60s");
    for (wrong, says) in
        [("", "empty"), ("{", "not JSON"), ("{}", "not a grant"), ("{\"tollgate_grant\":9}", "newer")]
    {
        for command in ["release", "extend"] {
            let output = sandbox.output(&[command, wrong]);
            assert_eq!(code(&output), 2, "{wrong:?}");
            assert!(text(&output.stderr).contains(says), "{wrong:?}: {}", text(&output.stderr));
        }
    }
    assert_eq!(code(&sandbox.output(&["release"])), 2, "nothing is on stdin");
    let json: Value = serde_json::from_str(&grant).unwrap();
    let with = |key: &str, value: Value| {
        let mut json = json.clone();
        json[key] = value;
        json.to_string()
    };
    let other_owner = with("owner", "0".repeat(32).into());
    assert_eq!(code(&sandbox.output(&["release", &other_owner])), 76);
    assert_eq!(code(&sandbox.output(&["extend", &other_owner])), 76);
    let other_boot = with("deadline", serde_json::json!({"boot_id": "x", "boottime_ns": 1}));
    let output = sandbox.output(&["release", &other_boot]);
    assert_eq!(code(&output), 76);
    assert!(text(&output.stderr).contains("reboot"), "{}", text(&output.stderr));
    let without = with("handle", Value::Null);
    assert_eq!(code(&sandbox.output(&["release", &without])), 78, "file: grants are kept by holders");
    assert!(!is_free(&sandbox, "x"));
}

#[test]
fn a_runtime_folder_that_is_not_ours_alone_is_not_used() {
    let sandbox = Sandbox::new();
    std::fs::set_permissions(sandbox.path("run"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let output = sandbox.output(&["acquire", "x"]);
    let grant: Value = serde_json::from_slice(&output.stdout).unwrap();
    let handle = grant["handle"].as_str().unwrap();
    assert!(handle.starts_with("holder:/tmp/tollgate-"), "{handle}");
    assert_eq!(sandbox.sockets(), 0);
    assert_eq!(code(&sandbox.output(&["release", &grant.to_string()])), 0);
}

/// Only root may do what these do: mount file systems, change users.
mod as_root {
    use super::*;

    #[test]
    fn another_users_holder_is_not_ours_to_release() {
        let sandbox = Sandbox::new();
        let (grant, _) = acquire(&sandbox, "60s");
        let binary = sandbox.copy_of_tollgate();
        std::fs::set_permissions(sandbox.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
        let output = command.args(["release", &grant]).output().unwrap();
        assert_eq!(code(&output), 77, "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("another user"), "{}", text(&output.stderr));
        assert!(!is_free(&sandbox, "x"));
    }

    #[test]
    fn a_runtime_folder_that_takes_no_socket_is_passed_over() {
        let sandbox = Sandbox::new();
        let script = "
            mkdir run/tollgate && mount -t tmpfs -o ro,mode=700 none run/tollgate || exit 9
            G=$(tollgate acquire x) || exit 1
            echo \"$G\" && tollgate release \"$G\"";
        let mut shell = sandbox.bash("unshare --mount bash -c \"$0\"");
        let output = shell.arg(script).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let grant: Value = serde_json::from_slice(&output.stdout).unwrap();
        let handle = grant["handle"].as_str().unwrap();
        assert!(handle.starts_with("holder:/tmp/tollgate-"), "{handle}");
    }
}
