//! Sentences for people, on stderr, coloured only on a terminal.

use anstyle::{AnsiColor, Style};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default();

/// Something went wrong.
pub(crate) fn error(text: &str) {
    anstream::eprintln!("tollgate: {ERROR}error:{ERROR:#} {text}");
}

/// Something a person at the terminal wants to know.
pub(crate) fn note(text: &str) {
    anstream::eprintln!("tollgate: {NOTE}{text}{NOTE:#}");
}

/// Like [`note`], but only if somebody sits there.
pub(crate) fn note_on_terminal(text: &str) {
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        note(text);
    }
}
