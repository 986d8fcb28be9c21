//! The signals that would end the process: they are caught, so that nothing is left behind.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate::{Error, ErrorKind, Result};

/// Signals that were sent to this process, in the order of their arrival.
pub(crate) struct Signals {
    listening: Vec<(i32, Signal)>,
}

/// The signals that `run` passes on: the command would get them if it ran without tollgate. Signals
/// of the terminal go to the command directly.
const PASSED_ON: [i32; 6] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

impl Signals {
    /// From now on none of these signals ends the process. A signal that was ignored when the
    /// process started stays ignored, as `nohup` needs it.
    pub(crate) fn listen() -> Result<Self> {
        let ignored = ignored();
        let mut listening = Vec::new();
        for number in PASSED_ON.into_iter().filter(|number| ignored & (1 << (number - 1)) == 0) {
            let stream = signal(SignalKind::from_raw(number)).map_err(|error| {
                Error::new(ErrorKind::Unexpected, format!("signal {number} cannot be caught"))
                    .caused_by(error)
            })?;
            listening.push((number, stream));
        }
        Ok(Self { listening })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, stream) in &mut self.listening {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The set of ignored signals; empty if /proc does not show it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
