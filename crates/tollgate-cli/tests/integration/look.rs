//! `tollgate ls` and `inspect`: the locks that are held, and their holders.

use crate::support::{Sandbox, text};
use serde_json::Value;

#[test]
fn a_url_that_is_empty_in_the_environment_is_none() {
    let sandbox = Sandbox::new();
    let output = sandbox
        .tollgate(&["run", "x", "--", "true"])
        .env("TOLLGATE_URL", "")
        .env_remove("XDG_STATE_HOME")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(sandbox.path(".local/state/tollgate/version").exists());
    assert_eq!(sandbox.output(&["ls", "--url", ""]).status.code(), Some(2), "what is written is meant");
}

#[test]
fn held_locks_are_listed_for_people_and_machines() {
    let sandbox = Sandbox::new();
    let empty: Value = serde_json::from_slice(&sandbox.output(&["ls", "--json"]).stdout).unwrap();
    assert_eq!(empty, serde_json::json!([]));
    let _a = sandbox.start(&["run", "jobs/a", "--", "sh", "-c", "echo >a; sleep 60"]);
    let _b = sandbox.start(&["run", "--shared", "jobs/b", "--", "sh", "-c", "echo >b; sleep 60"]);
    let _other = sandbox.start(&["run", "other", "--", "sh", "-c", "echo >c; sleep 60"]);
    for file in ["a", "b", "c"] {
        sandbox.wait_for(file);
    }
    let listed: Value = serde_json::from_slice(&sandbox.output(&["ls", "jobs/", "--json"]).stdout).unwrap();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["jobs/a", "jobs/b"]);
    assert_eq!(listed[0]["holders"][0]["mode"], "exclusive");
    assert_eq!(listed[1]["holders"][0]["mode"], "shared");
    assert_eq!(listed[0]["holders"][0]["token"], 1);
    assert_eq!(listed[0]["holders"][0]["details"]["meta"]["command"], "sh with 2 arguments");
    let table = text(&sandbox.output(&["ls"]).stdout);
    assert!(table.lines().count() == 4 && table.contains("jobs/a") && table.contains("other"), "{table}");
    assert!(!table.contains('\x1b'), "colours go to a terminal only");
}

#[test]
fn looking_makes_nothing() {
    let sandbox = Sandbox::new();
    let url = format!("file:{}", sandbox.path("not/there").display());
    assert_eq!(text(&sandbox.output(&["ls", "--url", &url, "--json"]).stdout), "[]\n");
    assert_eq!(text(&sandbox.output(&["inspect", "--url", &url, "x"]).stdout), "x: free\n");
    assert!(!sandbox.path("not").exists());
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let url = format!("file:{}", sandbox.path("empty").display());
    assert!(sandbox.output(&["ls", "--url", &url]).status.success());
    assert_eq!(std::fs::read_dir(sandbox.path("empty")).unwrap().count(), 0);
}

#[test]
fn one_lock_can_be_looked_at() {
    let sandbox = Sandbox::new();
    let free = sandbox.output(&["inspect", "x"]);
    assert_eq!((free.status.code(), text(&free.stdout)), (Some(0), "x: free\n".to_owned()));
    assert_eq!(text(&sandbox.output(&["inspect", "x", "--json"]).stdout).trim(), "null");
    let _holder = sandbox.start(&["run", "x", "--", "sh", "-c", "echo >held; sleep 60"]);
    sandbox.wait_for("held");
    let _waiter = sandbox.start(&["run", "--shared", "x", "--", "true"]);
    sandbox.wait_for_waiters(1);
    let seen = text(&sandbox.output(&["inspect", "x"]).stdout);
    assert!(seen.contains("held by pid") && seen.contains("waiter 1: pid"), "{seen}");
    let json: Value = serde_json::from_slice(&sandbox.output(&["inspect", "x", "--json"]).stdout).unwrap();
    assert_eq!(json["waiters"][0]["mode"], "shared");
    assert_eq!(sandbox.output(&["inspect", ""]).status.code(), Some(2));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let sandbox = Sandbox::new();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{} ls --json | true", env!("CARGO_BIN_EXE_tollgate"))]);
    let output = shell.env("TOLLGATE_URL", sandbox.url()).output().unwrap();
    assert!(!text(&output.stderr).contains("panic"), "{}", text(&output.stderr));
}
