//! What help says is true: every sub-command explains itself, and its examples work when pasted.
#![allow(clippy::unwrap_used)]

mod support;

use support::{Sandbox, text};
use tollgate_testkit::engines::{self, Config};

/// Every sub-command that people see.
fn commands(sandbox: &Sandbox) -> Vec<String> {
    let help = text(&sandbox.output(&["--help"]).stdout);
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty()).filter_map(|line| {
        // Those of the first column; what goes on in the next line is an explanation.
        let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        line.split_whitespace().next().map(str::to_owned)
    });
    names.filter(|name| name != "help").collect()
}

/// What examples call the nodes of Redlock.
const NODES: &str = "red:6379,green:6379,blue:6379";

/// Where they are here.
fn nodes() -> String {
    let node = |name: &str| {
        let config = Config::redis().argument("--proc-title-template").argument(name);
        engines::shared(&config).address().to_string()
    };
    ["red", "green", "blue"].map(node).join(",")
}

fn help(sandbox: &Sandbox, command: &str) -> String {
    let output = sandbox.output(&[command, "--help"]);
    assert_eq!(output.status.code(), Some(0), "{command}");
    text(&output.stdout)
}

#[test]
fn the_examples_of_every_sub_command_work_when_pasted() {
    let sandbox = Sandbox::new();
    let commands = commands(&sandbox);
    assert!(commands.len() >= 6 && commands.iter().any(|command| command == "acquire"), "{commands:?}");
    for command in commands {
        let help = help(&sandbox, &command);
        let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        let examples: Vec<_> = examples.filter_map(|line| line.strip_prefix("  ")).collect();
        assert!(!examples.is_empty(), "{command} has no example");
        for example in examples {
            assert!(example.len() <= 78, "{example} is cut in two on a narrow terminal");
            assert!(example.contains(&format!("tollgate {command}")), "{example} shows something else");
            let sandbox = Sandbox::new();
            // The nodes of Redlock have other names where people paste it.
            let example =
                &if example.contains(NODES) { example.replace(NODES, &nodes()) } else { example.to_owned() };
            let output = sandbox.bash(&format!("set -o pipefail\n{example}")).output().unwrap();
            assert!(!example.contains("<<<"), "{example} needs bash");
            assert_eq!(output.status.code(), Some(0), "{example}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn every_engine_can_be_found() {
    let help = help(&Sandbox::new(), "run");
    let schemes = [
        "file:",
        "redis://",
        "redis-sentinel://",
        "redis-cluster://",
        "redlock://",
        "redlocks://",
        "postgres://",
    ];
    for scheme in schemes.iter().chain(&["rediss"]) {
        assert!(help.contains(scheme), "{scheme} is not in: {help}");
    }
}

#[test]
fn the_inner_workings_are_not_for_people() {
    let sandbox = Sandbox::new();
    let all = text(&sandbox.output(&["--help"]).stdout).to_lowercase();
    assert!(!all.contains("guardian") && !all.contains("holder process"), "{all}");
}
