//! `tollgate elect` and `leader`: one leader at a time, visible to every client.

use crate::support::{Sandbox, eventually, text};
use serde_json::Value;

#[test]
fn one_leads_at_a_time_and_the_next_follows_a_leader_that_is_killed() {
    let sandbox = Sandbox::new();
    let leads = |value: &str, file: &str| {
        let script = format!("echo $TOLLGATE_TOKEN >{file}; sleep 60");
        sandbox.start(&["elect", "--value", value, "scheduler", "--", "sh", "-c", &script])
    };
    let leader = || -> Value {
        let output = sandbox.output(&["leader", "scheduler", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(leader(), Value::Null);
    assert_eq!(text(&sandbox.output(&["leader", "scheduler"]).stdout), "scheduler: no leader\n");
    let mut first = leads("one", "a");
    let epoch: u64 = sandbox.wait_for("a").trim().parse().unwrap();
    let _second = leads("two", "b");
    sandbox.wait_for_waiters(1);
    assert_eq!((leader()["value"].as_str(), leader()["epoch"].as_u64()), (Some("one"), Some(epoch)));
    first.signal(rustix::process::Signal::KILL);
    first.wait();
    let later: u64 = sandbox.wait_for("b").trim().parse().unwrap();
    assert!(later > epoch, "epochs rise: {epoch}, {later}");
    let seen = text(&sandbox.output(&["leader", "scheduler"]).stdout);
    assert!(seen.starts_with(&format!("two  epoch {later}  pid ")), "{seen}");
}

#[test]
fn the_commands_own_exit_code_is_elects() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.output(&["elect", "x", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let _leader = sandbox.start(&["elect", "x", "--", "sh", "-c", "echo >a; sleep 60"]);
    sandbox.wait_for("a");
    let late = sandbox.output(&["elect", "--wait", "100ms", "x", "--", "true"]);
    assert_eq!(late.status.code(), Some(75), "{}", text(&late.stderr));
    let long = "x".repeat(5000);
    let refused = sandbox.output(&["elect", "--value", &long, "y", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn leaders_are_told_as_they_come() {
    let sandbox = Sandbox::new();
    let script = "tollgate leader x --watch --json >told & watcher=$!\n\
                  tollgate elect --value one x -- sh -c 'until grep -q one told; do sleep 0.05; done'\n\
                  tollgate elect --value two x -- sh -c 'until grep -q two told; do sleep 0.05; done'\n\
                  kill -TERM $watcher; wait $watcher";
    let output = sandbox.bash(script).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = eventually("both are told", || {
        let lines: Vec<Value> =
            sandbox.read("told").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= 2).then_some(lines)
    });
    let epochs: Vec<u64> = told.iter().map(|leader| leader["epoch"].as_u64().unwrap()).collect();
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    assert_eq!(
        told.iter().map(|leader| leader["value"].as_str().unwrap()).collect::<Vec<_>>(),
        ["one", "two"]
    );
}
