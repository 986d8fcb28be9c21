//! `cargo xtask check`: everything about the code that can be told without running it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use crate::cargo::{cargo, must};
use crate::{dependencies, examples, tidy};

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
    ("stubs without a protoc", without_protoc),
    ("the dependency rule", dependencies::check),
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

/// Nobody who builds this has to have a `protoc`: makes all stubs again with one that fails, first in the path and named.
fn without_protoc() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("xtask-protoc-{}", std::process::id()));
    let protoc = folder.join("protoc");
    let made = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&protoc, "#!/bin/sh\necho 'somebody asked for protoc' >&2\nexit 1\n"))
        .and_then(|()| fs::set_permissions(&protoc, fs::Permissions::from_mode(0o755)));
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(folder.clone()).chain(std::env::split_paths(&path)))
        .map_err(|error| format!("PATH: {error}"))?;
    let built = must(cargo(&["check", "--quiet", "--workspace"]).env("PATH", path).env("PROTOC", &protoc));
    // What stays behind there is harmless.
    let _ = fs::remove_dir_all(&folder);
    built
}

fn facade_features() -> Result<(), String> {
    for features in ["", "etcd", "file", "memory", "mysql", "postgres", "redis", "zookeeper"] {
        let arguments =
            ["clippy", "--quiet", "-p", "tollgate", "--no-default-features", "--features", features];
        must(cargo(&arguments).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
