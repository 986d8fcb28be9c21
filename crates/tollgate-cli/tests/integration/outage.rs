//! `tollgate` beside a Redis that goes away: whoever waits goes on waiting, and whoever comes is told at once.

use std::time::{Duration, Instant};

use crate::support::{Sandbox, eventually, redis_cli, text};
use tollgate_testkit::engines::{self, Config, Data, Engine};

/// A command waits while the engine `leaves`, whoever comes meanwhile gets `code`, and it has its turn when the engine
/// `returns`.
fn outlasts(engine: &Engine, leaves: impl Fn(&Engine), code: i32, returns: impl Fn(&Engine)) {
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let hold = "echo >held; until test -e go; do sleep 0.02; done";
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "20s", "a", "--", "sh", "-c", hold]);
    sandbox.wait_for("held");
    let mut waits = sandbox.start(&["run", "--url", &url, "a", "--", "sh", "-c", "echo >in"]);
    let waiters = || {
        let output = sandbox.output(&["inspect", "--url", &url, "a", "--json"]);
        let state: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        (state["waiters"].as_array()?.len() == 1).then_some(())
    };
    eventually("the other one waits", waiters);
    leaves(engine);
    let away = Instant::now();
    while away.elapsed() < Duration::from_secs(1) {
        assert!(waits.0.try_wait().unwrap().is_none(), "it gave up: {}", waits.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    let comes = sandbox.output(&["run", "--url", &url, "a", "--", "true"]);
    assert_eq!(comes.status.code(), Some(code), "{}", text(&comes.stderr));
    returns(engine);
    eventually("it waits again", waiters);
    assert_eq!(sandbox.read("in"), "", "it came in beside the holder");
    std::fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(holder.code(), 0, "{}", holder.stderr());
    assert_eq!(waits.code(), 0, "{}", waits.stderr());
    assert_eq!(sandbox.read("in"), "\n");
}

#[test]
fn a_command_that_waits_outlasts_a_restart_of_redis() {
    let engine = engines::private(&Config::durable_redis()).unwrap();
    outlasts(&engine, Engine::kill, 69, |engine| engine.restart(Data::Kept).unwrap());
}

#[test]
fn a_command_that_waits_outlasts_a_primary_that_is_a_replica_for_a_while() {
    let (engine, nobody) = (engines::private(&Config::redis()).unwrap(), engines::spare_port());
    let port = nobody.number().to_string();
    let copies = |engine: &Engine, words: [&str; 2]| {
        redis_cli(engine.address(), &[&["REPLICAOF"], &words[..]].concat());
    };
    outlasts(
        &engine,
        |engine| copies(engine, ["127.0.0.1", &port]),
        78,
        |engine| copies(engine, ["NO", "ONE"]),
    );
}

#[test]
fn why_a_lock_could_not_be_renewed_is_said() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let hold = "echo >held; sleep 30";
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "2s", "a", "--", "sh", "-c", hold]);
    sandbox.wait_for("held");
    redis_cli(engine.address(), &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(holder.code(), 76, "{}", holder.stderr());
    let said = holder.stderr();
    assert!(said.contains("could not be renewed") && said.contains("min-replicas-to-write"), "{said}");
}

#[test]
fn a_command_that_ended_under_its_lock_has_its_own_code_though_redis_stood_still() {
    let engine = engines::private(&Config::redis()).unwrap();
    let (sandbox, url) = (Sandbox::new(), format!("redis://{}/", engine.address()));
    let hold = "echo >held; until test -e go; do sleep 0.02; done; exit 7";
    let mut holder = sandbox.start(&["run", "--url", &url, "--ttl", "3s", "a", "--", "sh", "-c", hold]);
    sandbox.wait_for("held");
    engine.pause();
    std::fs::write(sandbox.path("go"), "").unwrap();
    std::thread::sleep(Duration::from_secs(4));
    engine.resume();
    assert_eq!(holder.code(), 7, "{}", holder.stderr());
}
