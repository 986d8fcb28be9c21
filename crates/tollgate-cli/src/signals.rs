//! The signals that would end a process: heard instead, so that nothing is left behind.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate::{Error, ErrorKind, Result};

/// Signals sent to this process, in the order they come.
pub(crate) struct Signals {
    listening: Vec<(i32, Signal)>,
}

/// Those that `run` passes on: what the command would have got if nobody were in between. Those of the terminal go
/// to it directly.
const PASSED_ON: [i32; 6] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

impl Signals {
    /// From now on none of them ends this process. One that was ignored when it started stays ignored, as
    /// `nohup` wants it.
    pub(crate) fn listen() -> Result<Self> {
        let ignored = ignored();
        let mut listening = Vec::new();
        for number in PASSED_ON.into_iter().filter(|number| ignored & (1 << (number - 1)) == 0) {
            let stream = signal(SignalKind::from_raw(number)).map_err(|error| {
                Error::new(ErrorKind::Unexpected, format!("signal {number} cannot be listened for"))
                    .caused_by(error)
            })?;
            listening.push((number, stream));
        }
        Ok(Self { listening })
    }

    /// The next one.
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

/// The set of ignored signals; none if /proc does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
