//! Other people's clients, which `cargo xtask test` installs.

use std::path::{Path, PathBuf};

/// An installed file. `tmpdir` is what `env!("CARGO_TARGET_TMPDIR")` says in the test.
///
/// # Panics
/// If it is not installed.
pub fn installed(tmpdir: &str, name: &str) -> PathBuf {
    let path = Path::new(tmpdir).with_file_name("interop").join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask test redis` once", path.display());
    path
}

/// The Python that has the clients.
///
/// # Panics
/// If it is not installed.
pub fn python(tmpdir: &str) -> PathBuf {
    installed(tmpdir, "venv/bin/python")
}
