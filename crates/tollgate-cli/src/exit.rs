//! The exit codes, and how errors are mapped to them.

use tollgate::{Error, ErrorKind};

use crate::{show, tell};

/// The exit code of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    pub(crate) const OK: Self = Self(0);
    /// Of `leader`: there is no leader.
    pub(crate) const NO_LEADER: Self = Self(1);
    /// A usage error, an invalid name, an invalid URL.
    pub(crate) const USAGE: Self = Self(2);
    /// The engine cannot be reached.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// An unexpected error, most likely a bug.
    pub(crate) const UNEXPECTED: Self = Self(70);
    /// Another holder has the lock.
    pub(crate) const BUSY: Self = Self(75);
    /// The lock was lost.
    pub(crate) const LOST: Self = Self(76);
    /// This user may not do it.
    pub(crate) const DENIED: Self = Self(77);
    /// The configuration is wrong, or the engine does not support the request.
    pub(crate) const CONFIG: Self = Self(78);

    /// The exit code of the command that was run, or a code that the user chose.
    pub(crate) const fn of_command(code: u8) -> Self {
        Self(code)
    }

    /// 128 + n, as shells report a command that signal n ended.
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

/// An error and its causes, in one line.
pub(crate) fn in_full(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        // Some errors repeat their cause in their own text.
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    show::printable(&text.replace(['\n', '\r'], " "))
}

/// Prints an error, and returns its exit code.
pub(crate) fn report(error: &Error) -> Exit {
    tell::error(&in_full(error));
    match error.kind() {
        ErrorKind::InvalidArgument => Exit::USAGE,
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Indeterminate => Exit::UNAVAILABLE,
        ErrorKind::Busy | ErrorKind::Deadlock => Exit::BUSY,
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
    fn a_cause_that_repeats_the_message_is_printed_once() {
        let cause = std::io::Error::other(std::io::Error::other("refused"));
        let error = Error::new(ErrorKind::Unavailable, "it cannot be reached").caused_by(cause);
        assert_eq!(in_full(&error), "it cannot be reached: refused");
    }

    #[test]
    fn control_characters_from_an_engine_are_not_printed() {
        let cause = std::io::Error::other("ERR \u{1b}]0;title\u{7}\nsecond line");
        let text = in_full(&Error::new(ErrorKind::Unexpected, "the server refused it").caused_by(cause));
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }

    #[test]
    fn every_kind_of_error_has_its_documented_exit_code() {
        for (kind, code) in [
            (ErrorKind::InvalidArgument, 2),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Timeout, 69),
            (ErrorKind::Indeterminate, 69),
            (ErrorKind::Unexpected, 70),
            (ErrorKind::Busy, 75),
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
