//! What a command that runs for long says of its work: a line on stderr for each event.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};

use clap::ValueEnum;
use tollgate::{Error, ErrorKind, Result};
use tracing_subscriber::filter::LevelFilter;

/// How many lines wait for whoever reads stderr. What comes then is left out: the work does not wait for a log.
const WAITING: usize = 1024;

/// How much is said.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// What cannot be mended by waiting.
    Error,
    /// And every refusal, and every trouble with the store or the service.
    Warn,
    /// And what happens now and then.
    Info,
    /// And what happens all the time.
    Debug,
}

/// Says it from now on, in this process.
pub(crate) fn install(level: Level) -> Result<()> {
    let most = match level {
        Level::Off => return Ok(()),
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let failed =
        || Error::new(ErrorKind::Unexpected, "nothing can be logged; say --log off to go on without");
    let (sender, lines) = sync_channel::<Vec<u8>>(WAITING);
    let write = move || {
        for line in lines {
            // If nobody can be told, the work goes on.
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

/// Takes a line at a time.
struct Line(SyncSender<Vec<u8>>);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // There is no room, or nobody writes any more.
        let _ = self.0.try_send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
