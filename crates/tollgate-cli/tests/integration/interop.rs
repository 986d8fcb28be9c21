//! `tollgate run` beside clients that nobody here wrote, on the same key of one Redis.
#![allow(dead_code, clippy::unwrap_used, reason = "some of the workers are another test's binary")]

#[path = "../../../tollgate-redis/tests/interop/ground.rs"]
mod ground;
#[path = "../../../tollgate-redis/tests/interop/worker.rs"]
mod worker;

use std::net::SocketAddr;

use crate::support::{Sandbox, text};
use ground::Ground;
use tollgate_testkit::engines::{self, Config};
use worker::{Kind, Worker};

const FOREIGN: [Kind; 2] = [Kind::RedisPy, Kind::NodeRedlock];
const OF_EACH: usize = 2;
/// How often a command passes, and how often a foreign client, which is quicker.
const BY_RUN: usize = 20;
const BY_ITSELF: usize = 60;

fn redis() -> (SocketAddr, String) {
    let address = engines::shared(&Config::redis()).address();
    (address, format!("redis://{address}/"))
}

#[test]
fn run_and_foreign_clients_keep_each_other_out() {
    let (sandbox, (address, url)) = (Sandbox::new(), redis());
    for kind in FOREIGN {
        let name = format!("mixed/{}", kind.name());
        let mut foreigner = Worker::start(kind, &[address], &format!("lock:{name}"), &sandbox.path("."));
        assert_eq!(foreigner.ask("try 60000"), "granted");
        let output = sandbox.output(&["run", "--url", &url, "--try", &name, "--", "true"]);
        assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
        let seen = sandbox.output(&["inspect", "--url", &url, &name, "--json"]);
        assert!(seen.status.success(), "who holds it can be looked at: {}", text(&seen.stderr));
        // It waits, and is in when the other one has left.
        let mut waiting =
            sandbox.start(&["run", "--url", &url, &name, "--", "sh", "-c", "echo >in; sleep 300"]);
        crate::support::eventually("it waits", || {
            let seen = sandbox.output(&["inspect", "--url", &url, &name, "--json"]);
            let state: serde_json::Value = serde_json::from_slice(&seen.stdout).ok()?;
            (state["waiters"].as_array()?.len() == 1).then_some(())
        });
        assert_eq!(sandbox.read("in"), "");
        assert_eq!(foreigner.ask("release"), "released");
        sandbox.wait_for("in");
        assert_eq!(foreigner.ask("try 60000"), "busy");
        waiting.signal(rustix::process::Signal::TERM);
        waiting.wait();
        assert_eq!(
            foreigner.ask("try 60000"),
            "granted",
            "nothing of the command is left, and nothing of its lock"
        );
        std::fs::remove_file(sandbox.path("in")).unwrap();
    }
}

#[test]
fn one_at_a_time_passes_whether_by_run_or_by_a_foreign_client() {
    let (sandbox, (address, url)) = (Sandbox::new(), redis());
    let ground = Ground(sandbox.path("."));
    ground.prepare();
    let kinds = FOREIGN.iter().flat_map(|kind| [*kind; OF_EACH]);
    let mut workers: Vec<Worker> =
        kinds.map(|kind| Worker::launch(kind, &[address], "lock:crowd", &ground.0)).collect();
    workers.iter_mut().for_each(|worker| worker.must_say("ready"));
    workers.iter_mut().for_each(|worker| worker.order(&format!("count {BY_ITSELF} 20000")));
    std::thread::scope(|scope| {
        for _ in 0..OF_EACH {
            scope.spawn(|| (0..BY_RUN).for_each(|_| pass(&sandbox, &url)));
        }
    });
    workers.iter_mut().for_each(|worker| worker.must_say("done"));
    let (by_run, by_others) = (OF_EACH * BY_RUN, FOREIGN.len() * OF_EACH * BY_ITSELF);
    ground.traces().must_be_of(by_run + by_others, by_run);
}

/// A passage by a command, under the lock.
fn pass(sandbox: &Sandbox, url: &str) {
    let script = worker::sources().join("passage.sh");
    let (script, folder) = (script.to_str().unwrap(), sandbox.path("."));
    let passage = ["sh", script, folder.to_str().unwrap()];
    let output = sandbox.output(&[&["run", "--url", url, "crowd", "--"], &passage[..]].concat());
    assert!(output.status.success(), "{:?} {}", output.status, text(&output.stderr));
}
