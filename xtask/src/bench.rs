//! `cargo xtask bench`: the engine alone.

use crate::cargo::{cargo, must};

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut command = cargo(&["bench", "-p", "tollgate-engine", "--bench", "engine"]);
    if !arguments.is_empty() {
        command.arg("--").args(arguments);
    }
    must(&mut command)
}
