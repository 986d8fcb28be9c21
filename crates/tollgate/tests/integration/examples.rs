//! Every example, run as a user would.

use std::path::{Path, PathBuf};
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

/// A user's own tests with a fake, which are part of that example: run here as they are there.
#[path = "../../examples/fake.rs"]
#[allow(dead_code, reason = "its `main` is for the example")]
mod fake;

/// The program of an example, which cargo builds before these tests: beside them, in its own folder.
fn program(example: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(Path::parent).expect("tests are in target/…/deps");
    let program = folder.join("examples").join(example);
    assert!(program.is_file(), "{} is not built; run cargo build --examples first", program.display());
    program
}

#[test]
fn every_example_runs_on_every_engine_it_is_for() {
    for (example, schemes, says) in EXAMPLES {
        for scheme in *schemes {
            let folder = tempfile::tempdir().unwrap();
            let url = match *scheme {
                "file:" => format!("file:{}", folder.path().display()),
                "redis:" => format!("redis://{}/", engines::shared(&Config::redis()).address()),
                scheme => scheme.to_owned(),
            };
            let ran = Command::new(program(example)).arg(&url).output().unwrap();
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
