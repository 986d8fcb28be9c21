//! Requests to a holder process: extend and release of the grant it keeps.

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

/// How long a holder may take to answer. It answers at once, unless it is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has the holder at `path` keep `grant` for `ttl` from now; returns the new grant.
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

/// Has the holder at `path` release `grant`, and waits until the process is gone.
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

/// A holder process that has answered a request.
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
                "the lock is lost: the grant is older than the last reboot, or comes from another host, where it must be used",
            ));
        }
        let socket = UnixStream::connect(path).await.map_err(|error| unreachable(path, grant, error))?;
        let channel = Channel::new(socket);
        let pid = channel.peer();
        // Opened before the reply, so that it is this process and not a later one with the same
        // pid.
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
            // The holder has just ended, and the lock with it.
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
            // The kernel closes the holder's end of the socket when the holder ends.
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
        "the lock is lost: its ttl ended, or it was released or broken; take it again",
    )
}

fn unreachable(path: &Path, grant: &Grant, error: std::io::Error) -> Error {
    if let Some(error) = out_of_reach(path, grant) {
        return error;
    }
    let path = path.display();
    match error.kind() {
        // A holder removes its socket when it ends; the socket of a killed holder refuses
        // connections.
        IoErrorKind::NotFound | IoErrorKind::ConnectionRefused | IoErrorKind::ConnectionReset => lost(),
        IoErrorKind::PermissionDenied => Error::new(
            ErrorKind::Denied,
            format!(
                "another user holds the lock, and this user may not open {path}; run this as the user that took the lock"
            ),
        ),
        IoErrorKind::InvalidInput | IoErrorKind::NotADirectory => {
            Error::invalid(format!("the grant is damaged: {path:?} cannot be the socket of a holder process"))
        }
        _ => Error::new(ErrorKind::Unavailable, format!("the holder process at {path} cannot be reached"))
            .caused_by(error),
    }
}

/// The error for a holder whose folder was removed, as after a logout: the lock is still held,
/// because a holder removes its socket but never the folder.
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
            "the holder process cannot be reached, because the folder {folder} was removed; the lock is held for {left} \
             more, or until tollgate break takes it away"
        ),
    ))
}
