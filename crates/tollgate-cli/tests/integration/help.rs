//! The help is true: every sub-command explains itself, and its examples work when pasted.

use crate::support::{Sandbox, text};
use tollgate_testkit::engines::{self, Config};

/// Every sub-command that the help lists.
fn commands(sandbox: &Sandbox) -> Vec<String> {
    let help = text(&sandbox.output(&["--help"]).stdout);
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty()).filter_map(|line| {
        // Names are in the first column; a line that is indented further continues an explanation.
        let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        line.split_whitespace().next().map(str::to_owned)
    });
    names.filter(|name| name != "help").collect()
}

/// The nodes of Redlock in the examples.
const NODES: &str = "red:6379,green:6379,blue:6379";

/// The addresses of the nodes in this test.
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
            // The nodes of Redlock have other addresses here.
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
    let sandbox = Sandbox::new();
    let schemes = [
        "file:",
        "memory:",
        "redis://",
        "rediss://",
        "redis-sentinel://",
        "rediss-sentinel://",
        "redis-cluster://",
        "rediss-cluster://",
        "redlock://",
        "redlocks://",
        "etcd://",
        "etcds://",
        "zookeeper://",
        "zookeepers://",
        "postgres://",
        "postgresql://",
        "mysql://",
        "mariadb://",
    ];
    let run = help(&sandbox, "run");
    for scheme in schemes {
        assert!(run.contains(scheme), "{scheme} is not in: {run}");
    }
    let engines = [
        "file",
        "memory",
        "redis",
        "rediss",
        "redis-sentinel",
        "redis-cluster",
        "redlock",
        "etcd",
        "zookeeper",
        "postgres",
        "mysql",
        "mariadb",
    ];
    for command in ["doctor", "bench"] {
        let help = help(&sandbox, command);
        // What comes before the arguments: their --url names every engine.
        let about = help.split("Usage:").next().unwrap();
        for engine in engines {
            let mut words = about.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            assert!(words.any(|word| word == engine), "{engine} is not in: {about}");
        }
    }
}

#[test]
fn the_inner_workings_are_not_for_people() {
    let sandbox = Sandbox::new();
    let all = text(&sandbox.output(&["--help"]).stdout).to_lowercase();
    assert!(!all.contains("guardian") && !all.contains("holder process"), "{all}");
}
