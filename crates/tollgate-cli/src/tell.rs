//! Messages on stderr, coloured only on a terminal, and results on stdout.

use std::io::{ErrorKind as IoErrorKind, Write};

use anstyle::{AnsiColor, Style};
use tollgate::{Error, ErrorKind, Result};

use crate::{show, sys};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default();

/// Prints an error.
pub(crate) fn error(text: &str) {
    say(&format!("tollgate: {ERROR}error:{ERROR:#} {}\n", printable_lines(text)));
}

/// Prints a note or a warning.
pub(crate) fn note(text: &str) {
    say(&format!("tollgate: {NOTE}{}{NOTE:#}\n", printable_lines(text)));
}

fn printable_lines(text: &str) -> String {
    text.split('\n').map(show::printable).collect::<Vec<_>>().join("\n")
}

/// Like [`note`], but only if stderr is a terminal.
pub(crate) fn note_on_terminal(text: &str) {
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        note(text);
    }
}

/// Prints a question for the user at the terminal.
pub(crate) fn ask(text: &str) {
    say(text);
}

/// Writes a line to stdout at once; `false` when the reader of stdout has gone.
pub(crate) async fn line(text: &str) -> Result<bool> {
    was_read(write_aside(format!("{text}\n")).await)
}

fn was_read(written: std::io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == IoErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Error::new(ErrorKind::Unavailable, "the result cannot be written to stdout").caused_by(error))
        }
    }
}

/// Writes the text in one piece, so that processes that share a log do not garble it. A failed
/// write does not end the work.
fn say(text: &str) {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    let plain = || anstream::adapter::strip_str(text).to_string();
    let text = if choice == anstream::ColorChoice::Never { plain() } else { text.to_owned() };
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes text to stdout that must reach a reader: a failed write is an error.
pub(crate) async fn deliver(text: String) -> Result<()> {
    let failed = || Error::new(ErrorKind::Unavailable, "stdout cannot be written");
    if sys::started_without_stdout() {
        return Err(failed().caused_by(std::io::Error::other("stdout is closed")));
    }
    write_aside(text).await.map_err(|error| failed().caused_by(error))
}

/// Writes on another thread: a pipe that is full blocks until it is read, and signals must be
/// noticed meanwhile.
async fn write_aside(text: String) -> std::io::Result<()> {
    let written = tokio::task::spawn_blocking(move || write(&text)).await;
    written.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// As [`answer`], coloured only on a terminal.
pub(crate) fn answer_in_colour(text: &str) -> Result<()> {
    if anstream::AutoStream::choice(&std::io::stdout()) == anstream::ColorChoice::Never {
        return answer(&anstream::adapter::strip_str(text).to_string());
    }
    answer(text)
}

/// Writes a result to stdout. A reader that has gone is no error.
pub(crate) fn answer(text: &str) -> Result<()> {
    was_read(write(&format!("{}\n", text.strip_suffix('\n').unwrap_or(text)))).map(drop)
}
