//! `tollgate` on Redis, where a lock ends with its ttl: nothing of the command may live when the next one starts.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::{Sandbox, eventually, text, until_dead};
use rustix::process::Signal;
use tollgate_testkit::engines::{self, Config};

/// A command with a child, and a grandchild in a session of its own, that writes all their pids.
const FAMILY: &str = "setsid sh -c 'echo $$ >>pids; sleep 300' & sh -c 'echo $$ >>pids; sleep 300' & echo $$ >>pids; \
                      until test $(wc -l <pids) = 3; do sleep 0.01; done; echo >ready; wait";
/// Looks who of them is there.
const LOOK: &str = "for p in $(cat pids); do ps -o pid= -p $p; done >alive; echo >in";

fn redis() -> (SocketAddr, String) {
    let address = engines::shared(&Config::redis()).address();
    (address, format!("redis://{address}/"))
}

/// Whether somebody waits for the lock.
fn waits(sandbox: &Sandbox, url: &str, name: &str) -> Option<()> {
    let output = sandbox.output(&["inspect", "--url", url, name, "--json"]);
    let state: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    (!state["waiters"].as_array()?.is_empty()).then_some(())
}

/// A holder with a family is hit by `signal`; the next one looks for it.
fn hit(name: &str, signal: Signal) -> (Sandbox, i32, Duration) {
    let (sandbox, (_, url)) = (Sandbox::new(), redis());
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "2s", name, "--", "sh", "-c", FAMILY]);
    sandbox.wait_for("ready");
    let mut next = sandbox.start(&["run", "--url", &url, "--ttl", "2s", name, "--", "sh", "-c", LOOK]);
    eventually("the next one waits", || waits(&sandbox, &url, name));
    let since = Instant::now();
    holder.signal(signal);
    assert_eq!(next.code(), 0, "{}", next.stderr());
    let took = since.elapsed();
    assert_eq!(sandbox.read("alive"), "", "the command ran beside the next holder");
    until_dead(&sandbox.read("pids"));
    if signal == Signal::STOP {
        holder.signal(Signal::CONT);
        return (sandbox, holder.code(), took);
    }
    holder.0.wait().unwrap();
    (sandbox, -1, took)
}

#[test]
fn killing_run_ends_the_command_before_the_next_one_is_in() {
    let (_sandbox, _, took) = hit("killed", Signal::KILL);
    assert!(took < Duration::from_secs(10), "it took {took:?}");
}

#[test]
fn a_stopped_run_loses_its_command_before_the_next_one_is_in() {
    let (_sandbox, code, took) = hit("stopped", Signal::STOP);
    assert_eq!(code, 76, "it says that the lock was lost");
    assert!(took < Duration::from_secs(10), "it took {took:?}");
}

#[test]
fn scripts_take_and_give_back_locks() {
    let (sandbox, (address, url)) = (Sandbox::new(), redis());
    let grant = sandbox.output(&["acquire", "--url", &url, "script", "--ttl", "20s"]);
    assert!(grant.status.success(), "{}", text(&grant.stderr));
    let grant = text(&grant.stdout);
    assert!(!grant.contains(&address.port().to_string()), "a grant has no URL in it: {grant}");
    assert_eq!(sandbox.output(&["acquire", "--url", &url, "script", "--try"]).status.code(), Some(75));
    let extended = sandbox.output(&["extend", "--url", &url, grant.trim()]);
    assert!(extended.status.success(), "{}", text(&extended.stderr));
    let listed = text(&sandbox.output(&["ls", "--url", &url, "scr"]).stdout);
    assert!(listed.contains("script"), "{listed}");
    let code = |arguments: &[&str]| sandbox.output(arguments).status.code();
    assert_eq!(code(&["release", "--url", &url, grant.trim()]), Some(0));
    assert_eq!(code(&["release", "--url", &url, grant.trim()]), Some(76));
}

#[test]
fn an_operator_breaks_a_lock_and_its_command_ends() {
    let (sandbox, (_, url)) = (Sandbox::new(), redis());
    let mut holder =
        sandbox.start(&["run", "--url", &url, "--ttl", "2s", "broken", "--", "sh", "-c", FAMILY]);
    sandbox.wait_for("ready");
    let broken = sandbox.output(&["break", "--url", &url, "broken", "--yes"]);
    assert!(broken.status.success(), "{}", text(&broken.stderr));
    assert_eq!(holder.code(), 76);
    until_dead(&sandbox.read("pids"));
}

#[test]
fn what_is_wrong_with_the_url_is_said_with_the_right_code() {
    let (sandbox, (address, _)) = (Sandbox::new(), redis());
    let closed = engines::private(&Config::redis()).unwrap();
    let set = std::process::Command::new("redis-cli")
        .args(["-p", &closed.address().port().to_string(), "CONFIG", "SET", "requirepass", "other"])
        .output();
    assert_eq!(text(&set.unwrap().stdout).trim(), "OK");
    let run = |url: &str| sandbox.output(&["run", "--url", url, "x", "--", "true"]);
    let free = engines::spare_port();
    for (url, code, says) in [
        (format!("redis://{}/", free.address()), 69, "running"),
        (format!("redis://:pw@{}/", closed.address()), 77, "password"),
        (format!("redis://{address}/?prefx=a"), 2, "prefx"),
        (format!("redis://{address}/?ca=x"), 2, "rediss"),
        (format!("redis://{address}/x"), 2, "numbers"),
        ("redis:nonsense".to_owned(), 2, "redis://HOST:PORT"),
        ("rediss://localhost/?ca=/no/such/file".to_owned(), 78, "/no/such/file"),
        (format!("redis-sentinel://{address}/main"), 78, "is not a sentinel"),
    ] {
        let output = run(&url);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{url}: {said}");
        assert!(said.contains(says), "{url}: {said}");
        assert!(!said.contains(":pw@"), "nobody prints a password: {said}");
    }
}

#[test]
fn doctor_says_what_must_be_changed_and_what_is_only_worth_knowing() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let worth_knowing = sandbox.output(&["doctor", &url]);
    assert_eq!(worth_knowing.status.code(), Some(0), "{}", text(&worth_knowing.stderr));
    assert!(text(&worth_knowing.stdout).contains("keeps nothing on disk"), "{}", text(&worth_knowing.stdout));
    let evicts = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"];
    let config = evicts.iter().fold(Config::redis(), |config, argument| config.argument(*argument));
    let engine = engines::private(&config).unwrap();
    let problem = sandbox.output(&["doctor", "--json", &format!("redis://{}/", engine.address())]);
    assert_eq!(problem.status.code(), Some(78), "{}", text(&problem.stderr));
    assert!(text(&problem.stdout).contains("noeviction"), "{}", text(&problem.stdout));
    engine.kill();
    let gone = sandbox.output(&["doctor", &format!("redis://{}/", engine.address())]);
    assert_eq!(gone.status.code(), Some(69), "{}", text(&gone.stderr));
}

#[test]
fn doctor_knows_the_nodes_that_were_made_voters() {
    let nodes: Vec<_> = (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect();
    let hosts: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let (sandbox, url) = (Sandbox::new(), format!("redlock://{}", hosts.join(",")));
    let said = |url: &str| {
        let output = sandbox.output(&["doctor", url]);
        // All of them are on this machine.
        assert_eq!(output.status.code(), Some(78), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(said(&url).contains("no node has ever voted"), "{}", said(&url));
    assert!(sandbox.output(&["redlock-init", &url]).status.success());
    let voting = said(&url);
    assert!(voting.contains("every node that answers votes") && !voting.contains("longest ttl"), "{voting}");
    let other = said(&format!("{url}?max_ttl=1m"));
    assert!(other.contains("the longest ttl is 60s in this URL"), "{other}");
}
