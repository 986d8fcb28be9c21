//! Exit codes: what a script can tell apart.

use tollgate::{Error, ErrorKind};

use crate::tell;

/// How the command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    pub(crate) const OK: Self = Self(0);
    /// Bad usage, bad name, bad URL.
    pub(crate) const USAGE: Self = Self(2);
    /// The engine cannot be reached.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// A bug.
    pub(crate) const UNEXPECTED: Self = Self(70);
    /// Somebody else holds the lock.
    pub(crate) const BUSY: Self = Self(75);
    /// The lock was lost.
    pub(crate) const LOST: Self = Self(76);
    /// We are not allowed to.
    pub(crate) const DENIED: Self = Self(77);
    /// Something is set up wrong, or cannot be done here.
    pub(crate) const CONFIG: Self = Self(78);

    /// A code of the command that was run, or one that the user chose.
    pub(crate) const fn of_command(code: u8) -> Self {
        Self(code)
    }

    /// As a shell says that a signal ended a command.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    pub(crate) fn code(self) -> u8 {
        self.0
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// An error and what caused it.
pub(crate) fn in_full(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        // Some say again what caused them.
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}

/// Tells the user what went wrong, and gives the code for it.
pub(crate) fn report(error: &Error) -> Exit {
    tell::error(&in_full(error));
    match error.kind() {
        ErrorKind::InvalidArgument => Exit::USAGE,
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Indeterminate => Exit::UNAVAILABLE,
        ErrorKind::Deadlock => Exit::BUSY,
        ErrorKind::Lost => Exit::LOST,
        ErrorKind::Denied => Exit::DENIED,
        ErrorKind::Unsupported | ErrorKind::Config => Exit::CONFIG,
        _ => Exit::UNEXPECTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_says_the_same_again_is_told_once() {
        let cause = std::io::Error::other(std::io::Error::other("refused"));
        let error = Error::new(ErrorKind::Unavailable, "it cannot be reached").caused_by(cause);
        assert_eq!(in_full(&error), "it cannot be reached: refused");
    }

    #[test]
    fn every_kind_has_the_code_scripts_know() {
        for (kind, code) in [
            (ErrorKind::InvalidArgument, 2),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Timeout, 69),
            (ErrorKind::Indeterminate, 69),
            (ErrorKind::Unexpected, 70),
            (ErrorKind::Deadlock, 75),
            (ErrorKind::Lost, 76),
            (ErrorKind::Denied, 77),
            (ErrorKind::Config, 78),
            (ErrorKind::Unsupported, 78),
        ] {
            assert_eq!(report(&Error::new(kind, "x")).code(), code, "{kind:?}");
        }
        assert_eq!(Exit::of_signal(9).code(), 137);
    }
}
