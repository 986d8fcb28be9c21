//! How a command is ended when its lock is: broken by an operator, about to be lost, or out of reach.

use std::time::{Duration, Instant};

use tollgate_testkit::engines::{self, Config};

use crate::support::{Running, Sandbox, eventually, lives, redis_cli, text, until_dead};

/// A command that ignores SIGTERM, and says again and again that it is alive. Writes its process to `pid`.
const STUBBORN: &str =
    "trap 'echo heard >term' TERM; echo $$ >pid; while :; do date +%s%N >>alive; sleep 0.02; done";

/// One that heeds it.
const OBEDIENT: &str = "echo $$ >pid; while :; do date +%s%N >>alive; sleep 0.02; done";

/// What the next one does: it says when it was in.
const NEXT: &str = "date +%s%N >in";

/// The last time in a file to which times are appended, or none that a command was killed while writing.
fn nanos(text: &str) -> u128 {
    let last = text.split_inclusive('\n').rfind(|line| line.ends_with('\n'));
    last.and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("{text:?} ends with no time"))
}

/// Runs `script` under the lock `x`, and has another command wait for it.
fn holder_and_next(sandbox: &Sandbox, url: &str, ttl: &str, script: &str) -> (Running, Running) {
    let holder = sandbox.start(&["run", "--url", url, "--ttl", ttl, "x", "--", "sh", "-c", script]);
    sandbox.wait_for("alive");
    let next = sandbox.start(&["run", "--url", url, "x", "--", "sh", "-c", NEXT]);
    until_one_waits(sandbox, url);
    (holder, next)
}

fn until_one_waits(sandbox: &Sandbox, url: &str) {
    eventually("the next waits", || {
        let output = sandbox.output(&["inspect", "--url", url, "x", "--json"]);
        let state: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        (state["waiters"].as_array()?.len() == 1).then_some(())
    });
}

/// Without `--force` the old command is gone before the next is in, whether or not it heeds SIGTERM.
fn the_old_command_is_gone_before_the_next_is_in(url: &str) {
    for script in [OBEDIENT, STUBBORN] {
        let sandbox = Sandbox::new();
        let (mut holder, mut next) = holder_and_next(&sandbox, url, "4s", script);
        let pid = sandbox.wait_for("pid");
        let broken = sandbox.output(&["break", "--url", url, "x", "--yes"]);
        assert_eq!(broken.status.code(), Some(0), "{}", text(&broken.stderr));
        assert!(text(&broken.stdout).starts_with("x: revoked"), "{}", text(&broken.stdout));
        assert_eq!(holder.code(), 76, "{}", holder.stderr());
        assert_eq!(next.code(), 0, "{}", next.stderr());
        until_dead(&pid);
        let (last, first) = (nanos(&sandbox.read("alive")), nanos(&sandbox.read("in")));
        assert!(
            last < first,
            "the old command was alive {} ms after the next was in",
            (last - first) / 1_000_000
        );
        let said = holder.stderr();
        assert!(said.contains("an operator broke it"), "{said}");
    }
}

#[test]
fn a_broken_lock_on_redis_goes_on_when_the_command_is_gone() {
    let address = engines::shared(&Config::redis()).address();
    the_old_command_is_gone_before_the_next_is_in(&format!("redis://{address}/?namespace=ending"));
}

#[test]
fn a_broken_lock_on_postgres_goes_on_when_the_command_is_gone() {
    let address = engines::shared(&Config::postgres()).address();
    let url = format!("postgres://postgres@{address}/postgres?namespace=ending");
    the_old_command_is_gone_before_the_next_is_in(&url);
}

#[test]
fn a_broken_lock_on_mariadb_goes_on_when_the_command_is_gone() {
    let address = engines::shared(&Config::mariadb()).address();
    the_old_command_is_gone_before_the_next_is_in(&format!("mariadb://root@{address}/test?namespace=ending"));
}

#[test]
fn a_broken_lock_on_etcd_goes_on_when_the_command_is_gone() {
    let address = engines::shared(&Config::etcd()).address();
    the_old_command_is_gone_before_the_next_is_in(&format!("etcd://{address}/?namespace=ending"));
}

#[test]
fn a_broken_lock_on_zookeeper_goes_on_when_the_command_is_gone() {
    let engine = engines::shared(&Config::zookeeper().argument("maxSessionTimeout=60000"));
    let url = format!("zookeeper://{}/?tick=200ms&namespace=ending", engine.address());
    the_old_command_is_gone_before_the_next_is_in(&url);
}

#[test]
fn a_broken_advisory_lock_goes_on_when_the_command_is_gone() {
    the_old_command_is_gone_before_the_next_is_in(&advisory("ending"));
}

#[test]
fn a_broken_session_lock_goes_on_when_the_command_is_gone() {
    the_old_command_is_gone_before_the_next_is_in(&session("ending"));
}

fn advisory(namespace: &str) -> String {
    let address = engines::shared(&Config::postgres()).address();
    format!("postgres://postgres@{address}/postgres?style=advisory&namespace={namespace}")
}

fn session(namespace: &str) -> String {
    let address = engines::shared(&Config::mariadb()).address();
    format!("mariadb://root@{address}/test?style=session&namespace={namespace}")
}

/// A holder that does not leave, where no time ends its lock: it is named, and by force it is out.
fn a_stopped_holder_is_named_and_can_be_put_out(url: &str) {
    let sandbox = Sandbox::new();
    let (mut holder, mut next) = holder_and_next(&sandbox, url, "4s", OBEDIENT);
    let command = sandbox.wait_for("pid");
    holder.signal(rustix::process::Signal::STOP);
    let began = Instant::now();
    let pending = sandbox.output(&["break", "--url", url, "x", "--yes"]);
    assert_eq!(pending.status.code(), Some(75), "{}", text(&pending.stderr));
    assert!(began.elapsed() >= Duration::from_secs(10), "it was not waited for");
    let said = text(&pending.stdout);
    let named = format!("end process {} on ", holder.pid().as_raw_pid());
    assert!(said.starts_with("x: pending") && said.contains(&named) && said.contains("--force"), "{said}");
    assert!(text(&pending.stderr).contains("was asked to leave"), "{}", text(&pending.stderr));
    assert!(!sandbox.path("in").exists(), "the next is in beside a holder that has not left");
    let broken = sandbox.output(&["break", "--url", url, "x", "--yes", "--force"]);
    assert_eq!(broken.status.code(), Some(0), "{}", text(&broken.stderr));
    assert!(text(&broken.stderr).contains("at the latest at its next renewal"), "{}", text(&broken.stderr));
    assert_eq!(next.code(), 0, "{}", next.stderr());
    holder.signal(rustix::process::Signal::CONT);
    until_dead(&command);
    assert_eq!(holder.code(), 76);
    let said = holder.stderr();
    assert!(said.contains("an operator broke it"), "{said}");
}

#[test]
fn a_stopped_holder_of_an_advisory_lock_is_named_and_can_be_put_out() {
    a_stopped_holder_is_named_and_can_be_put_out(&advisory("stopped"));
}

#[test]
fn a_stopped_holder_of_a_session_lock_is_named_and_can_be_put_out() {
    a_stopped_holder_is_named_and_can_be_put_out(&session("stopped"));
}

/// Of a lock that was taken away there is no grace, which would be 5 s here.
#[test]
fn a_command_whose_lock_was_taken_away_by_force_is_killed_at_once() {
    let url = format!("redis://{}/?namespace=forced", engines::shared(&Config::redis()).address());
    let sandbox = Sandbox::new();
    let (mut holder, mut next) = holder_and_next(&sandbox, &url, "30s", STUBBORN);
    let pid = sandbox.wait_for("pid");
    let broken = sandbox.output(&["break", "--url", &url, "x", "--yes", "--force"]);
    let began = Instant::now();
    assert_eq!(broken.status.code(), Some(0), "{}", text(&broken.stderr));
    until_dead(&pid);
    assert!(began.elapsed() < Duration::from_millis(3500), "it had a grace: {:?}", began.elapsed());
    assert_eq!(holder.code(), 76);
    assert_eq!(next.code(), 0, "{}", next.stderr());
}

/// An engine that lost its data has no lock to keep: the next renewal finds that out, and leaves no grace, 2.25 s here.
#[test]
fn a_command_whose_lock_the_engine_forgot_is_killed_at_the_next_renewal() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "9s", "x", "--", "sh", "-c", STUBBORN]);
    let pid = sandbox.wait_for("pid");
    assert_eq!(redis_cli(engine.address(), &["FLUSHALL"]), "OK");
    let began = Instant::now();
    until_dead(&pid);
    // It renews every 3 s.
    assert!(began.elapsed() < Duration::from_millis(4500), "it had a grace: {:?}", began.elapsed());
    assert_eq!(holder.code(), 76);
}

/// The holder hears of the loss at its next renewal, and a waiter is back at the emptied Redis long before.
#[test]
fn a_command_whose_lock_the_engine_forgot_is_gone_before_a_waiter_is_in() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let run = ["run", "--url", &url, "--ttl", "9s", "x", "--", "sh", "-c"];
    let mut holder = sandbox.start(&[&run[..], &[STUBBORN]].concat());
    sandbox.wait_for("alive");
    let mut next = sandbox.start(&[&run[..], &[NEXT]].concat());
    until_one_waits(&sandbox, &url);
    assert_eq!(redis_cli(engine.address(), &["FLUSHALL"]), "OK");
    assert_eq!(holder.code(), 76, "{}", holder.stderr());
    assert_eq!(next.code(), 0, "{}", next.stderr());
    let (last, first) = (nanos(&sandbox.read("alive")), nanos(&sandbox.read("in")));
    assert!(
        last < first,
        "the old command was alive {} ms after the next was in",
        (last - first) / 1_000_000
    );
}

#[test]
fn a_wait_whose_engine_hangs_ends_in_time_and_is_not_called_busy() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let script = "echo $$ >pid; exec sleep 60";
    let mut holder = sandbox.start(&["run", "--url", &url, "x", "--", "sh", "-c", script]);
    sandbox.wait_for("pid");
    let began = Instant::now();
    let mut waiter = sandbox.start(&["run", "--url", &url, "--wait", "4s", "x", "--", "true"]);
    until_one_waits(&sandbox, &url);
    engine.pause();
    assert_eq!(waiter.code(), 69);
    // A second more for the engine to say that the lock is still busy, and what a busy machine adds.
    assert!(began.elapsed() < Duration::from_secs(8), "it took {:?} to give up after 4 s", began.elapsed());
    assert!(waiter.stderr().contains("the engine did not answer"), "{}", waiter.stderr());
    engine.resume();
    holder.signal(rustix::process::Signal::TERM);
    holder.code();
}

/// The engine is back before the deadline, and the lock is renewed from then on.
#[test]
fn a_command_that_was_told_to_end_is_gone_by_the_deadline_though_the_engine_is_back() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "8s", "x", "--", "sh", "-c", STUBBORN]);
    let pid = sandbox.wait_for("pid");
    engine.pause();
    sandbox.wait_for("term");
    engine.resume();
    let began = Instant::now();
    assert_eq!(redis_cli(engine.address(), &["PING"]), "PONG");
    assert_eq!(holder.code(), 76, "{}", holder.stderr());
    // A quarter of the ttl was left when it was told.
    assert!(began.elapsed() < Duration::from_secs(7), "it was alive for {:?}", began.elapsed());
    assert!(!lives(pid.trim()), "it outlived its lock");
    let next = sandbox.output(&["run", "--url", &url, "--wait", "1s", "x", "--", "true"]);
    assert_eq!(next.status.code(), Some(0), "the lock was given back: {}", text(&next.stderr));
}

mod as_root {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// A run by an ordinary user whose command becomes root's, as with sudo: it cannot be ended by the user who started it. It
    /// ends by itself when there is a file `go`.
    fn run_as_with_sudo(sandbox: &Sandbox, url: &str) -> Running {
        let open = |path: &str, mode| {
            std::fs::set_permissions(sandbox.path(path), PermissionsExt::from_mode(mode)).unwrap();
        };
        open("", 0o777);
        let binary = sandbox.copy_of_tollgate();
        let becomes_root = sandbox.path("becomes-root");
        let mut copy = Command::new("sh");
        copy.args(["-c", "cp $(command -v setpriv) \"$0\""]).arg(&becomes_root);
        assert!(copy.status().unwrap().success());
        open("becomes-root", 0o4755);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        command.args(["run", "--url", url, "--ttl", "2s", "x", "--"]).arg(&becomes_root);
        command.args([
            "--reuid=0",
            "sh",
            "-c",
            "echo $$ >pid; until test -e go; do sleep 0.02; done; exit 7",
        ]);
        command.current_dir(sandbox.path("")).stdin(Stdio::null()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    #[test]
    fn a_command_of_another_user_that_outlives_its_lock_is_reported() {
        let engine = engines::private(&Config::redis()).unwrap();
        let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
        let mut holder = run_as_with_sudo(&sandbox, &url);
        let pid = sandbox.wait_for("pid");
        assert_eq!(redis_cli(engine.address(), &["FLUSHALL"]), "OK");
        let next = sandbox.output(&["run", "--url", &url, "--wait", "20s", "x", "--", "true"]);
        assert_eq!(next.status.code(), Some(0), "{}", text(&next.stderr));
        // Longer than until the next renewal.
        std::thread::sleep(Duration::from_secs(3));
        assert!(lives(pid.trim()), "it could be ended");
        std::fs::write(sandbox.path("go"), "").unwrap();
        assert_eq!(holder.code(), 76);
        let said = holder.stderr();
        assert!(said.contains("is lost") && said.contains(&format!("sudo kill {}", pid.trim())), "{said}");
        // It is the one named, and not each of the short processes that it starts.
        assert_eq!(said.matches("sudo kill").count(), 1, "{said}");
    }

    #[test]
    fn a_command_of_another_user_keeps_its_lock_and_is_named() {
        let sandbox = Sandbox::new();
        let url = format!("redis://{}/?namespace=sudo", engines::shared(&Config::redis()).address());
        let mut holder = run_as_with_sudo(&sandbox, &url);
        let pid = sandbox.wait_for("pid");
        holder.signal(rustix::process::Signal::TERM);
        // Beyond the ttl: it is renewed as long as the command lives.
        std::thread::sleep(Duration::from_secs(3));
        assert!(lives(pid.trim()), "it could be ended");
        let busy = sandbox.output(&["run", "--try", "--url", &url, "x", "--", "true"]);
        assert_eq!(busy.status.code(), Some(75), "{}", text(&busy.stderr));
        std::fs::write(sandbox.path("go"), "").unwrap();
        assert_eq!(holder.code(), 7);
        let said = holder.stderr();
        assert!(said.contains("belongs to another user") && said.contains("sudo tollgate run"), "{said}");
        assert_eq!(said.matches("belongs to another user").count(), 1, "{said}");
    }
}
