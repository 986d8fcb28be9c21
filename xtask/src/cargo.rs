//! Cargo, called from within cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the workspace").to_owned()
}

/// A call of cargo in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command that must succeed.
pub(crate) fn must(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}

/// What cargo knows about the workspace and its dependencies.
pub(crate) fn metadata() -> Result<Value, String> {
    let output = cargo(&["metadata", "--format-version", "1", "--locked"]).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}
