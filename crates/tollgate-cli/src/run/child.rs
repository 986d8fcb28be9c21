//! The guardian, seen from `run`.

use std::collections::HashSet;
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
use crate::engine_url::{URL, URL_FILE, URL_WITHHELD};
use crate::guardian::{self, News, Order, descendants};
use crate::{show, sys, tell};

/// The variables that the command does not inherit: secrets of Tollgate's own.
const WITHHELD: [&str; 3] = [URL, URL_FILE, "TOLLGATE_STORE"];

/// The guardian's process and the channel to it.
pub(super) struct Guardian {
    process: Child,
    news: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
}

impl Guardian {
    /// Starts the guardian. [`Order::Start`] starts the command.
    pub(super) fn start(args: &RunArgs, url: &str, guards: &Guards) -> Result<Self> {
        Self::spawn(args, url, guards).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the guardian process cannot be started").caused_by(error)
        })
    }

    fn spawn(args: &RunArgs, url: &str, guards: &Guards) -> std::io::Result<Self> {
        // Processes that outlive the guardian become children of this one, which can end them.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (ours, theirs) = Socket::pair()?;
        // Where the lock belongs to a descriptor, the guardian and the command inherit it: the lock
        // is then held as long as any of them lives.
        let locks: Vec<OwnedFd> = guards.iter().filter_map(|guard| guard.descriptor().ok()).collect();
        let mut kept: Vec<_> = locks.iter().map(AsRawFd::as_raw_fd).collect();
        kept.push(theirs.as_raw_fd());
        let mut command = Command::new("/proc/self/exe");
        command.arg0(guardian::ARG0).args(&args.command);
        // The variables of a `tollgate run` around this one are about another lock.
        command.env_remove("TOLLGATE_NAME").env_remove("TOLLGATE_TOKEN").envs(environment::variables(guards));
        // The URL may contain a password, which the command does not need.
        let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let had_url = has(URL) || has(URL_FILE);
        WITHHELD.iter().for_each(|name| {
            command.env_remove(name);
        });
        if args.pass_url {
            command.env(URL, url);
        } else if had_url {
            command.env(URL_WITHHELD, "1");
        }
        command.env(guardian::ENV, theirs.as_raw_fd().to_string());
        let process = sys::spawn_with(&mut command, &kept)?;
        ours.set_nonblocking(true)?;
        let (news, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { process, news: BufReader::new(news).lines(), orders })
    }

    /// Sends an order. A failure is ignored: if the guardian is gone, it sends no more news.
    pub(super) async fn tell(&mut self, order: &Order) {
        if let Ok(line) = serde_json::to_string(order) {
            let _ = self.orders.write_all(format!("{line}\n").as_bytes()).await;
        }
    }

    /// The next message of the guardian; `None` when it is gone.
    pub(super) async fn news(&mut self) -> Option<News> {
        let line = self.news.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// Waits for the end of the guardian, after it has reported that no process of the command is
    /// left.
    pub(super) fn leave(mut self) {
        let _ = self.process.wait();
    }

    /// Kills a guardian that does not answer, or cleans up after one that died: kills every process
    /// that it left behind, which are children of this process now.
    pub(super) async fn bury(mut self) {
        let _ = self.process.kill();
        let mut reported = HashSet::new();
        loop {
            if let Some(pid) = descendants::kill_all(rustix::process::getpid())
                && reported.insert(pid)
            {
                tell::note(&format!("{}; waiting until it ends", show::out_of_reach(pid)));
            }
            if !descendants::reap() {
                return;
            }
            // A process that cannot be killed may run for a long time.
            let pause = if reported.is_empty() { 5 } else { 100 };
            tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        }
    }
}
