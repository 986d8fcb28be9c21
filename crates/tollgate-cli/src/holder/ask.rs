//! Asking a holder, by the grant it keeps.

use std::io::ErrorKind as IoErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::net::UnixStream;
use tollgate::{Deadline, Error, ErrorKind, Grant, Result};

use super::channel::{Channel, Reply, Request};
use crate::clock::now;
use crate::show;

/// A holder answers at once, unless somebody has stopped it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has the holder at `path` keep `grant` for `ttl` from now; the grant as it is then.
pub(crate) async fn extend(path: &Path, grant: &Grant, ttl: Duration) -> Result<Grant> {
    let asked = async {
        match Asked::ask(path, grant, &Request::Extend { owner: grant.owner, ttl }).await?.reply {
            Reply::Extended(until) => Ok(Grant { ttl, deadline: Deadline::At(until), ..grant.clone() }),
            Reply::Refused(why) => Err(Error::invalid(why)),
            Reply::Lost | Reply::Released => Err(lost()),
        }
    };
    asked.await.map_err(|error: Error| error.during("extend").on(&grant.name))
}

/// Has the holder at `path` let go of `grant`, and waits until the process is gone.
pub(crate) async fn release(path: &Path, grant: &Grant) -> Result<()> {
    let asked = async {
        let mut asked = Asked::ask(path, grant, &Request::Release { owner: grant.owner }).await?;
        match asked.reply {
            Reply::Released => asked.until_gone().await,
            _ => Err(lost()),
        }
    };
    asked.await.map_err(|error: Error| error.during("release").on(&grant.name))
}

/// A holder that has answered.
struct Asked {
    channel: Channel,
    process: Option<OwnedFd>,
    who: String,
    reply: Reply,
}

impl Asked {
    async fn ask(path: &Path, grant: &Grant, request: &Request) -> Result<Self> {
        if grant.deadline == Deadline::Unknown {
            return Err(Error::new(
                ErrorKind::Lost,
                "the lock is lost: the grant comes from before a reboot, or from another host, where it must be used",
            ));
        }
        let socket = UnixStream::connect(path).await.map_err(|error| unreachable(path, grant, error))?;
        let channel = Channel::new(socket);
        let pid = channel.peer();
        // Before it answers, so that it is surely this process and not a later one with its number.
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let who =
            pid.map_or_else(|| "the holder process".to_owned(), |pid| format!("the holder process {pid}"));
        let mut asked = Self { channel, process, who, reply: Reply::Lost };
        let answer = async {
            asked.channel.tell(request).await.ok()?;
            asked.channel.hear().await
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Some(reply)) => Ok(Self { reply, ..asked }),
            // It ended just now, and the lock with it.
            Ok(None) => asked.until_gone().await.and_then(|()| Err(lost())),
            Err(_) => Err(asked.silent()),
        }
    }

    /// Waits until the process has ended.
    async fn until_gone(&mut self) -> Result<()> {
        let gone = match &self.process {
            Some(process) => {
                let timeout = PATIENCE.try_into().ok();
                poll(&mut [PollFd::new(process, PollFlags::IN)], timeout.as_ref())
                    .is_ok_and(|ready| ready > 0)
            }
            // The kernel closes its end when it ends.
            None => tokio::time::timeout(PATIENCE, self.channel.hear::<Reply>()).await.is_ok(),
        };
        if gone { Ok(()) } else { Err(self.silent()) }
    }

    fn silent(&self) -> Error {
        let who = &self.who;
        Error::new(
            ErrorKind::Timeout,
            format!("{who} does not answer; if it is stopped, continue it with kill -CONT, or kill it"),
        )
    }
}

fn lost() -> Error {
    Error::new(
        ErrorKind::Lost,
        "the lock is lost: its time was over, or it was released or broken; take it again",
    )
}

fn unreachable(path: &Path, grant: &Grant, error: std::io::Error) -> Error {
    if let Some(error) = out_of_reach(path, grant) {
        return error;
    }
    let path = path.display();
    match error.kind() {
        // A holder removes its socket when it ends, and one that was killed answers no more.
        IoErrorKind::NotFound | IoErrorKind::ConnectionRefused | IoErrorKind::ConnectionReset => lost(),
        IoErrorKind::PermissionDenied => Error::new(
            ErrorKind::Denied,
            format!(
                "another user holds it, and {path} is closed to this one; do this as the user who took the lock"
            ),
        ),
        IoErrorKind::InvalidInput | IoErrorKind::NotADirectory => {
            Error::invalid(format!("the grant is damaged: no holder can be at {path:?}"))
        }
        _ => Error::new(ErrorKind::Unavailable, format!("the holder at {path} cannot be reached"))
            .caused_by(error),
    }
}

/// A holder removes its socket, but never the folder: if that is gone, as after a logout, the lock is held all the
/// same.
fn out_of_reach(path: &Path, grant: &Grant) -> Option<Error> {
    let folder = path.parent()?;
    let is_gone = std::fs::symlink_metadata(folder).is_err_and(|error| error.kind() == IoErrorKind::NotFound);
    let Deadline::At(until) = grant.deadline else { return None };
    let left = until.since(now());
    if !is_gone || left.is_zero() {
        return None;
    }
    let (folder, left) = (folder.display(), show::short(left));
    Some(Error::new(
        ErrorKind::Unavailable,
        format!(
            "its holder cannot be reached, because the folder {folder} was removed; the lock is held for {left} more, \
             or until tollgate break takes it away"
        ),
    ))
}
