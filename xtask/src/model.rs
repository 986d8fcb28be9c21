//! `cargo xtask model`: Redlock's protocol in worlds that are too large for CI, in a release build.

use crate::cargo::{cargo, must};

/// It prints "exhaustive" only for what it has looked at to the end.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let options = arguments.strip_prefix(&["--".to_owned()][..]).unwrap_or(arguments);
    let program = ["run", "--release", "--quiet", "-p", "tollgate-redlock-model", "--"];
    must(cargo(&program).args(options))
}
