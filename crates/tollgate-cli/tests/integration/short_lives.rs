//! Processes on Redis that end in the middle of something, or live for a moment: what they leave behind ends by itself,
//! and what they began is finished by others.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Running, Sandbox, eventually, redis_cli, text};
use rustix::process::Signal;
use tollgate_testkit::engines::{self, Config, Data, Engine};

/// `acquire` that waits behind a holder.
fn waiting(sandbox: &Sandbox, engine: &Engine, url: &str, ttl: &str) -> (String, Running) {
    let grant = sandbox.output(&["acquire", "--url", url, "a", "--ttl", "60s"]);
    assert!(grant.status.success(), "{}", text(&grant.stderr));
    let waits = sandbox.start(&["acquire", "--url", url, "a", "--ttl", ttl]);
    eventually("it waits", || {
        (redis_cli(engine.address(), &["ZCARD", "{lock:a}:queue"]) == "1").then_some(())
    });
    (text(&grant.stdout).trim().to_owned(), waits)
}

#[test]
fn an_acquire_that_is_told_to_end_leaves_the_queue_before_it_does() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let (_, mut waits) = waiting(&sandbox, &engine, &url, "60s");
    waits.signal(Signal::TERM);
    assert_eq!(waits.code(), 143, "{}", waits.stderr());
    assert_eq!(redis_cli(engine.address(), &["EXISTS", "{lock:a}:queue"]), "0");
}

#[test]
fn an_acquire_that_is_killed_holds_nobody_up_for_longer_than_its_ttl() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let (grant, mut waits) = waiting(&sandbox, &engine, &url, "2s");
    waits.signal(Signal::KILL);
    waits.0.wait().unwrap();
    // It is handed over to nobody, perhaps, and comes back.
    let since = Instant::now();
    assert!(sandbox.output(&["release", "--url", &url, &grant]).status.success());
    let next = sandbox.output(&["run", "--url", &url, "a", "--", "true"]);
    assert_eq!(next.status.code(), Some(0), "{}", text(&next.stderr));
    assert!(since.elapsed() < Duration::from_secs(2 + 1 + 3), "it took {:?}", since.elapsed());
    eventually("nothing is left", || {
        (redis_cli(engine.address(), &["EXISTS", "lock:a", "{lock:a}:queue"]) == "0").then_some(())
    });
}

#[test]
fn an_acquire_whose_grant_nobody_gets_gives_the_lock_back() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = sandbox
        .tollgate(&["acquire", "--url", &url, "a", "--ttl", "60s"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", text(&output.stderr));
    assert_eq!(redis_cli(engine.address(), &["EXISTS", "lock:a"]), "0", "nobody has the grant");
}

#[test]
fn commands_that_live_for_a_moment_bring_a_node_of_redlock_back() {
    let nodes: Vec<Engine> = (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect();
    let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let (sandbox, url) = (Sandbox::new(), format!("redlock://{}?max_ttl=1s", hosts.join(",")));
    let init = sandbox.output(&["redlock-init", &url]);
    assert!(init.status.success(), "{}", text(&init.stderr));
    nodes[1].kill();
    nodes[1].restart(Data::Lost).unwrap();
    let votes = |node: &Engine| {
        let info = redis_cli(node.address(), &["INFO", "server"]);
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim().to_owned();
        redis_cli(node.address(), &["EXISTS", &format!("tollgate:member:{run_id}")]) == "1"
    };
    assert!(!votes(&nodes[1]), "it has forgotten everything");
    eventually("it votes", || {
        let run = sandbox.output(&["run", "--url", &url, "--ttl", "1s", "a", "--", "true"]);
        assert_eq!(run.status.code(), Some(0), "two are a majority: {}", text(&run.stderr));
        votes(&nodes[1]).then_some(())
    });
    // It counts: another one may fail now.
    nodes[2].kill();
    let run = sandbox.output(&["run", "--url", &url, "--ttl", "1s", "a", "--", "true"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
}
