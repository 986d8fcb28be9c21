//! `cargo xtask check`: everything about the code that can be told without running it.

use std::process::Stdio;
use std::time::Instant;

use crate::bench::peers_folder;
use crate::cargo::{cargo, must};
use crate::{dependencies, examples, publishing, tidy};

type Step = (&'static str, fn() -> Result<(), String>);

const STEPS: &[Step] = &[
    ("formatting", formatting),
    ("lints", || {
        must(&mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    }),
    ("documentation", || {
        must(cargo(&["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("doctests", || must(&mut cargo(&["test", "--quiet", "--workspace", "--doc"]))),
    ("a facade with no backend, and with each alone", facade_features),
    ("the dependency rule", dependencies::check),
    ("licences, and packages for crates.io", publishing::check),
    ("the lock file of the peers", peers_lock_file),
    ("tidiness", tidy::check),
    ("an example for every item of the facade", examples::check),
];

pub(crate) fn run() -> Result<(), String> {
    for (number, (name, step)) in STEPS.iter().enumerate() {
        println!("check {}/{}: {name}", number + 1, STEPS.len());
        let started = Instant::now();
        step().map_err(|error| format!("{name}: {error}"))?;
        println!("check {}/{}: {name} in {:.1} s", number + 1, STEPS.len(), started.elapsed().as_secs_f64());
    }
    tidy::print_longest();
    Ok(())
}

/// Of the workspace, and of the peers outside it.
fn formatting() -> Result<(), String> {
    must(&mut cargo(&["fmt", "--all", "--check"]))?;
    ["bench-peers", "bench-peers/protoc"].iter().try_for_each(|package| {
        must(&mut cargo(&["fmt", "--manifest-path", &format!("{package}/Cargo.toml"), "--check"]))
    })
}

/// The benches use it as it is, and it has the dependencies of our crates, too.
fn peers_lock_file() -> Result<(), String> {
    let mut metadata = cargo(&["metadata", "--quiet", "--locked", "--format-version", "1"]);
    must(metadata.current_dir(peers_folder()).stdout(Stdio::null()))
}

fn facade_features() -> Result<(), String> {
    for features in ["", "etcd", "file", "memory", "mysql", "postgres", "redis", "server", "zookeeper"] {
        let arguments =
            ["clippy", "--quiet", "-p", "tollgate", "--no-default-features", "--features", features];
        must(cargo(&arguments).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
