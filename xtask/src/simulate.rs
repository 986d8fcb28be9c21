//! `cargo xtask simulate`: the server, its disk and its clients under every fault, on seeds.

use crate::cargo::{cargo, must};

pub(crate) fn run(options: &[String]) -> Result<(), String> {
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "tollgate-simulator", "--"]);
    must(command.args(options))
}
