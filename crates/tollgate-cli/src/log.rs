//! The log of a command that runs for long: one line on stderr for each event.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};

use clap::ValueEnum;
use tollgate::{Error, ErrorKind, Result};
use tracing_subscriber::filter::LevelFilter;

/// How many lines may wait for the reader of stderr. Lines beyond that are dropped: the work does
/// not wait for the log.
const WAITING: usize = 1024;

/// How much is logged.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// Only errors that do not pass by themselves.
    Error,
    /// Also each refusal, and each failure of the store or the service.
    Warn,
    /// Also events that happen from time to time.
    Info,
    /// Also events that happen all the time.
    Debug,
}

/// Starts the log of this process.
pub(crate) fn install(level: Level) -> Result<()> {
    let most = match level {
        Level::Off => return Ok(()),
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let failed =
        || Error::new(ErrorKind::Unexpected, "the log cannot be started; pass --log off to run without it");
    let (sender, lines) = sync_channel::<Vec<u8>>(WAITING);
    let write = move || {
        for line in lines {
            // A failed write to stderr does not end the work.
            let _ = io::stderr().write_all(&line);
        }
    };
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(write)
        .map_err(|error| failed().caused_by(error))?;
    let writer = move || Line(sender.clone());
    let said = tracing_subscriber::fmt().with_max_level(most).with_ansi(false).with_writer(writer).try_init();
    said.map_err(|error| failed().caused_by(io::Error::other(error)))
}

/// Takes one line per write, and queues it.
struct Line(SyncSender<Vec<u8>>);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The queue is full, or the writing thread has ended.
        let _ = self.0.try_send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
