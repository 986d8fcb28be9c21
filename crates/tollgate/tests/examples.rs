//! Every example, run as a user would.

use std::path::Path;
use std::process::Command;

use tollgate_testkit::engines::{self, Config};

/// Each example, the engines it runs on, and something it must say.
const EXAMPLES: &[(&str, &[&str], &str)] = &[
    ("mutex", &["memory:", "file:"], "worker 3 is in, with token"),
    ("read_write", &["memory:", "file:"], "the writer is in, with token"),
    ("semaphore", &["memory:", "file:"], "never more than 2 at once"),
    ("multi_lock", &["memory:", "file:"], "nobody waited for ever"),
    ("cancel_on_loss", &["memory:", "file:"], "the work was cancelled: cannot run \"report\""),
    ("stall_after", &["memory:", "file:"], "the next one is in, with token"),
    ("blocking", &["memory:", "file:"], "the report has 17 rows"),
    ("adopt", &["file:"], "the child has released it"),
    ("election", &["memory:", "file:"], "host-2 leads, epoch"),
    ("fake", &["memory:"], "both tests passed"),
    ("fenced_redis", &["redis:"], "refused: cannot set: the token"),
];

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

#[test]
fn every_example_runs_on_every_engine_it_is_for() {
    let built = cargo(&["build", "--quiet", "--examples"]).status().unwrap();
    assert!(built.success(), "the examples do not build");
    for (example, schemes, says) in EXAMPLES {
        for scheme in *schemes {
            let folder = tempfile::tempdir().unwrap();
            let url = match *scheme {
                "file:" => format!("file:{}", folder.path().display()),
                "redis:" => format!("redis://{}/", engines::shared(&Config::redis()).address()),
                scheme => scheme.to_owned(),
            };
            let ran = cargo(&["run", "--quiet", "--example", example, "--", &url]).output().unwrap();
            let (said, error) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert!(ran.status.success(), "{example} on {url}: {} {error}", ran.status);
            assert!(said.contains(says), "{example} on {url} said {said:?}");
        }
    }
}

#[test]
fn no_example_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(EXAMPLES.iter().any(|(example, ..)| *example == name), "{name} is run by no test");
    }
}

#[test]
fn the_tests_of_a_user_with_a_fake_pass() {
    let ran = cargo(&["test", "--quiet", "--example", "fake"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("2 passed"), "{said}");
}
