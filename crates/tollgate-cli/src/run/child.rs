//! The guardian as `run` sees it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tollgate::{Error, ErrorKind, Guards, Result};

use super::args::RunArgs;
use super::environment;
use crate::guardian::{self, News, Order, descendants};
use crate::sys;

/// The guardian's process and the way to talk to it.
pub(super) struct Guardian {
    process: Child,
    news: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

impl Guardian {
    /// Starts it. The command is started by [`Order::Start`].
    pub(super) fn start(args: &RunArgs, guards: &Guards) -> Result<Self> {
        Self::spawn(args, guards).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the guardian process cannot be started").caused_by(error)
        })
    }

    fn spawn(args: &RunArgs, guards: &Guards) -> std::io::Result<Self> {
        // Whatever outlives the guardian comes to us, so that we can end it.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (ours, theirs) = Socket::pair()?;
        // Where the lock hangs on a descriptor the guardian and the command inherit it: the lock is then held
        // as long as any of them lives.
        let locks: Vec<OwnedFd> = guards.iter().filter_map(|guard| guard.descriptor().ok()).collect();
        let mut kept: Vec<_> = locks.iter().map(AsRawFd::as_raw_fd).collect();
        kept.push(theirs.as_raw_fd());
        let mut command = Command::new("/proc/self/exe");
        command.arg0(guardian::ARG0).args(&args.command);
        // Those of a run around this one speak of another lock.
        command.env_remove("TOLLGATE_NAME").env_remove("TOLLGATE_TOKEN").envs(environment::variables(guards));
        command.env(guardian::ENV, theirs.as_raw_fd().to_string());
        let process = sys::spawn_with(&mut command, &kept)?;
        ours.set_nonblocking(true)?;
        let (news, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { process, news: BufReader::new(news).lines(), orders })
    }

    /// Tells it. If it is gone, its silence says so.
    pub(super) async fn tell(&mut self, order: &Order) {
        if let Ok(line) = serde_json::to_string(order) {
            let _ = self.orders.write_all(format!("{line}\n").as_bytes()).await;
        }
    }

    /// What it has to say; `None` when it is gone.
    pub(super) async fn news(&mut self) -> Option<News> {
        let line = self.news.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// Waits until it has left, after it said that nobody else is.
    pub(super) fn leave(mut self) {
        let _ = self.process.wait();
    }

    /// It died before its time, or does not answer: ends it and everything that it left behind, which comes to
    /// us.
    pub(super) async fn bury(mut self) {
        let _ = self.process.kill();
        loop {
            descendants::kill_all(rustix::process::getpid());
            if !descendants::reap() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}
