//! Sentences for people, on stderr, coloured only on a terminal; and answers, on stdout.

use std::io::{ErrorKind as IoErrorKind, Write};

use anstyle::{AnsiColor, Style};
use tollgate::{Error, ErrorKind, Result};

use crate::sys;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default();

/// Something went wrong.
pub(crate) fn error(text: &str) {
    say(&format!("tollgate: {ERROR}error:{ERROR:#} {text}\n"));
}

/// Something a person at the terminal wants to know.
pub(crate) fn note(text: &str) {
    say(&format!("tollgate: {NOTE}{text}{NOTE:#}\n"));
}

/// Like [`note`], but only if somebody sits there.
pub(crate) fn note_on_terminal(text: &str) {
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        note(text);
    }
}

/// A question for a person at the terminal.
pub(crate) fn ask(text: &str) {
    say(text);
}

/// Writes a line to stdout at once; `false` when nobody reads any more.
pub(crate) async fn line(text: &str) -> Result<bool> {
    was_read(write_aside(format!("{text}\n")).await)
}

fn was_read(written: std::io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == IoErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Error::new(ErrorKind::Unavailable, "the answer cannot be written").caused_by(error))
        }
    }
}

/// In one piece, so that processes that share a log do not garble it. If nobody can be told, the work goes on.
fn say(text: &str) {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    let plain = || anstream::adapter::strip_str(text).to_string();
    let text = if choice == anstream::ColorChoice::Never { plain() } else { text.to_owned() };
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes something to stdout that is of no use unless somebody gets it.
pub(crate) async fn deliver(text: String) -> Result<()> {
    let failed = || Error::new(ErrorKind::Unavailable, "it cannot be written to stdout");
    if sys::started_without_stdout() {
        return Err(failed().caused_by(std::io::Error::other("stdout is closed")));
    }
    write_aside(text).await.map_err(|error| failed().caused_by(error))
}

/// Writes on another thread: a pipe that is full blocks as long as nobody reads, and signals must be heard
/// meanwhile.
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

/// Writes an answer to stdout. A reader that has gone away has read enough.
pub(crate) fn answer(text: &str) -> Result<()> {
    was_read(write(&format!("{}\n", text.strip_suffix('\n').unwrap_or(text)))).map(drop)
}
