//! Starting a holder process, and leaving locks to it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use tollgate::{Deadline, Error, ErrorKind, Grant, Guards, Moment, Result};

use super::channel::{ARG0, Channel, ENV, News, Order};
use super::rendezvous::{handle_of, new_paths};
use crate::engine_url::{URL, URL_FILE};
use crate::sys;

/// How long a holder may take to be ready. It takes milliseconds, unless a process that it depends
/// on is stopped.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a holder process has to do.
pub(crate) struct Mission<'a> {
    pub(crate) url: &'a str,
    /// When it releases the locks by itself.
    pub(crate) until: Moment,
    /// Whether a client will have the grant and ask the holder to extend or release it.
    pub(crate) listens: bool,
}

/// A holder process that shares the locks, and to which they can be left. Dropping it before that
/// ends it, and the locks stay as they were.
pub(crate) struct Heir {
    process: Child,
    channel: Channel,
    until: Moment,
    /// The paths where it may listen; once it is ready, the one where it does.
    sockets: Vec<PathBuf>,
    /// Whether the locks were left to it.
    left_to: bool,
}

impl Heir {
    /// Starts a holder that shares `guards` until they are [left](Self::inherit) to it.
    pub(crate) async fn start(mission: &Mission<'_>, guards: &Guards) -> Result<Self> {
        let sockets = if mission.listens { new_paths()? } else { Vec::new() };
        let descriptors = guards.iter().map(|guard| guard.descriptor()).collect::<Result<Vec<_>>>()?;
        let grants = guards.iter().map(|guard| guard.grant().clone());
        let locks = grants.zip(descriptors.iter().map(AsRawFd::as_raw_fd)).collect();
        let mut heir = Self::spawn(mission, guards, &descriptors, sockets.clone())
            .map_err(|error| cannot("the holder process cannot be started").caused_by(error))?;
        let prepare = Order::Prepare { url: mission.url.to_owned(), locks, until: mission.until, sockets };
        let News::Ready { socket } = heir.order(&prepare).await? else { return Err(nonsense()) };
        heir.sockets = socket.into_iter().collect();
        // The locks may have been lost while the holder started.
        guards.check()?;
        let News::Started = heir.order(&Order::Start).await? else { return Err(nonsense()) };
        Ok(heir)
    }

    fn spawn(
        mission: &Mission<'_>,
        guards: &Guards,
        locks: &[OwnedFd],
        sockets: Vec<PathBuf>,
    ) -> std::io::Result<Self> {
        let (ours, theirs) = Socket::pair()?;
        let mut kept: Vec<_> = locks.iter().map(AsRawFd::as_raw_fd).collect();
        kept.push(theirs.as_raw_fd());
        let mut command = Command::new("/proc/self/exe");
        // The names of the locks as arguments, for `ps`.
        command.arg0(ARG0).args(guards.iter().map(|guard| guard.name().as_str()));
        command.env(ENV, theirs.as_raw_fd().to_string());
        // The holder gets the URL over the socket.
        command.env_remove(URL).env_remove(URL_FILE);
        let channel = Channel::from_std(ours)?;
        let process = sys::spawn_apart(&mut command, &kept)?;
        Ok(Self { process, channel, until: mission.until, sockets, left_to: false })
    }

    /// Sends an order, and waits for the reply.
    async fn order(&mut self, order: &Order) -> Result<News> {
        let answer = async {
            self.channel.tell(order).await.ok()?;
            self.channel.hear().await
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Some(News::Failed(why))) => Err(cannot(&why)),
            Ok(Some(news)) => Ok(news),
            Ok(None) => Err(cannot("the holder process ended before it held the lock")),
            Err(_) => Err(cannot(
                "the holder process does not become ready; is it stopped, or a process that it waits for?",
            )),
        }
    }

    /// Leaves the locks to the holder. With the returned grants clients find it.
    pub(crate) fn inherit(&mut self, guards: Guards) -> Result<Vec<Grant>> {
        let grants = guards.into_iter().map(|guard| guard.bequeath().map(|(grant, _)| grant));
        let grants = grants.collect::<Result<Vec<_>>>()?;
        self.left_to = true;
        let found_at = |mut grant: Grant| {
            grant.deadline = Deadline::At(self.until);
            grant.handle = self.sockets.first().map(|path| handle_of(path));
            grant
        };
        Ok(grants.into_iter().map(found_at).collect())
    }

    /// Has the holder release the locks that were left to it, and waits until it is gone.
    pub(crate) async fn recall(mut self) {
        let left = async {
            self.channel.tell(&Order::Release).await.ok();
            // There is no reply; the socket closes when the holder ends.
            self.channel.hear::<News>().await;
        };
        if tokio::time::timeout(PATIENCE, left).await.is_err() {
            // A holder that is stopped is killed: the kernel frees the lock.
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        if self.left_to {
            return;
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn cannot(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why).during("leave the lock to a holder process")
}

fn nonsense() -> Error {
    Error::new(ErrorKind::Unexpected, "the reply of the holder process was not the expected one")
}
