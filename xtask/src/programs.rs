//! The test programs: built once for all parts, then run as cargo would run them.
//!
//! `cargo test -p` for one part after the other would compile tokio and all that lies above it again and again: which of
//! its features are on depends on the packages that are named.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cargo::cargo;

/// One built test program.
pub(crate) struct Program {
    package: String,
    /// Its source, as people know it: `tests/conformance.rs`.
    source: String,
    executable: PathBuf,
    /// Tests run in their package's folder.
    folder: PathBuf,
}

/// Builds the tests of `packages`, or all, with cargo's further `flags`.
pub(crate) fn build(packages: &[&str], flags: &[&str]) -> Result<Vec<Program>, String> {
    // Without `--tests`, so that the examples are built, too, which a test runs.
    let mut command = cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(flags).stdout(Stdio::piped());
    if packages.is_empty() {
        command.arg("--workspace");
    }
    command.args(packages.iter().flat_map(|package| ["-p", package]));
    let mut child = command.spawn().map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let programs: Vec<Program> = lines.map_while(Result::ok).filter_map(|line| Program::of(&line)).collect();
    let status = child.wait().map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(programs),
        false => Err("the tests cannot be built".to_owned()),
    }
}

impl Program {
    /// What a line of cargo's says was built, if that is a test.
    fn of(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let executable = PathBuf::from(message["executable"].as_str()?);
        if message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let source = Path::new(message["target"]["src_path"].as_str()?);
        let source = source.strip_prefix(&folder).unwrap_or(source).display().to_string();
        let package = folder.file_name()?.to_str()?.to_owned();
        Some(Self { package, source, executable, folder })
    }

    pub(crate) fn is_of(&self, packages: &[&str]) -> bool {
        packages.contains(&self.package.as_str())
    }

    /// What it is called in what a run prints.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.package, self.source)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(arguments).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_what_else_cargo_builds() {
        let line = |test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": "/house/crates/tollgate-sql/Cargo.toml",
                "target": { "src_path": "/house/crates/tollgate-sql/tests/queue.rs" },
                "profile": { "test": test },
                "executable": "/house/target/debug/deps/queue-1",
            })
        };
        let program = Program::of(&line(true).to_string()).expect("that is a test");
        assert_eq!(program.title(), "tollgate-sql tests/queue.rs");
        assert!(program.is_of(&["tollgate-core", "tollgate-sql"]) && !program.is_of(&["tollgate"]));
        assert!(Program::of(&line(false).to_string()).is_none(), "a binary is no test");
        assert!(Program::of("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }
}
