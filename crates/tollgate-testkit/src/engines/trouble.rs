//! Why an engine does not run.

use std::path::Path;

/// What went wrong, as a sentence that says what to do, with the engine's own words where there are some.
#[derive(Debug)]
pub struct Trouble(String);

impl Trouble {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// A program of the Debian package `package` is not there.
    pub(super) fn missing(program: &Path, package: &str) -> Self {
        Self(format!(
            "{} is missing; install the Debian package {package}, or run `cargo xtask test`, which does",
            program.display()
        ))
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
