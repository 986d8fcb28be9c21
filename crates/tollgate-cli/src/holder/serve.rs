//! The main loop of the holder process: it takes the locks over, answers requests, and releases the
//! locks in time.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Socket;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tollgate::{Error, ErrorKind, Grant, Guard, Locks, Moment, Release, Result};

use super::channel::{ARG0, Channel, ENV, News, Order, Reply, Request};
use crate::clock::now;
use crate::exit::{Exit, in_full};
use crate::signals::Signals;
use crate::{sys, take};

/// How long a client that connects may take to send its request.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the clock is read: timers do not count while the machine is suspended.
const TICK: Duration = Duration::from_secs(1);

/// Runs as a holder, if this process was started as one.
pub(crate) fn run_if_asked() -> Option<Exit> {
    // The variable alone proves nothing: it may be inherited.
    let arg0 = std::env::args_os().next()?;
    let descriptor = std::env::var(ENV).ok().filter(|_| arg0 == ARG0)?.parse().ok()?;
    let socket = sys::adopt_socket(descriptor).ok()?;
    // It was started through /proc/self/exe, and would be called exe.
    sys::call_process(c"tollgate-holder");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Some(match runtime.map(|runtime| runtime.block_on(live(socket))) {
        Ok(Some(())) => Exit::OK,
        Ok(None) | Err(_) => Exit::UNEXPECTED,
    })
}

/// Runs the holder; `None` if it never held a lock.
async fn live(socket: Socket) -> Option<()> {
    let mut starter = Channel::from_std(socket).ok()?;
    let order = starter.hear().await?;
    let holder = match prepare(order).await {
        Ok(holder) => holder,
        Err(error) => {
            starter.tell(&News::Failed(in_full(&error))).await.ok()?;
            return None;
        }
    };
    let socket = holder.door.as_ref().map(|door| door.path.clone());
    starter.tell(&News::Ready { socket }).await.ok();
    // Until the order to start, the locks belong to the process that started this one: it ends
    // without a release, which would take them away from that process.
    let order = tokio::select! {
        order = starter.hear() => order,
        () = reached(holder.until) => None,
    };
    if !matches!(order, Some(Order::Start)) {
        holder.abandon();
    }
    // If the starter is gone by now, the deadline ends the locks.
    starter.tell(&News::Started).await.ok();
    holder.hold(starter).await;
    Some(())
}

/// Takes the locks over.
async fn prepare(order: Order) -> Result<Holder> {
    let Order::Prepare { url, locks: theirs, until, sockets } = order else {
        return Err(Error::new(
            ErrorKind::Unexpected,
            "the first message to the holder process was not the expected one",
        ));
    };
    let signals = Signals::listen()?;
    let locks = tollgate::connect(&url).await?;
    let mut held = Vec::new();
    for (grant, descriptor) in theirs {
        let inherited = match sys::adopt(descriptor) {
            Ok(lock) => locks.inherit(grant.clone(), lock).await,
            Err(error) => {
                Err(Error::new(ErrorKind::Unexpected, "the descriptor of the lock was not passed on")
                    .caused_by(error))
            }
        };
        match inherited {
            Ok(guard) => held.push(Held { grant, guard }),
            Err(error) => {
                // Not released: they still belong to the starter.
                std::mem::forget(held);
                return Err(error);
            }
        }
    }
    let door = match Door::open_first(&sockets) {
        Ok(door) => door,
        Err(error) => {
            std::mem::forget(held);
            return Err(error);
        }
    };
    // So that the holder keeps no file system in use. The folder of the locks is known by its full
    // path.
    let _ = std::env::set_current_dir("/");
    Ok(Holder { locks, held, until, door, signals })
}

/// A lock that the holder keeps.
struct Held {
    grant: Grant,
    guard: Guard,
}

struct Holder {
    locks: Locks,
    held: Vec<Held>,
    until: Moment,
    door: Option<Door>,
    signals: Signals,
}

impl Holder {
    /// Ends this process without a release: the locks stay with the starter.
    fn abandon(self) -> ! {
        drop(self.door);
        std::process::exit(Exit::UNEXPECTED.code().into())
    }

    /// Holds the locks until the deadline, a release, a signal, or the loss of all of them.
    async fn hold(mut self, starter: Channel) {
        let mut starter = Some(starter);
        let mut answer = None;
        while !self.held.is_empty() {
            let lost = select_all(self.held.iter().map(|held| Box::pin(held.guard.lost())));
            tokio::select! {
                // The clock first: after a SIGSTOP, requests that came meanwhile may be too late.
                biased;
                () = reached(self.until) => break,
                _ = self.signals.next() => break,
                (_, index, _) = lost => {
                    // An operator broke this lock. It is released, and the others stay held.
                    let _ = self.held.swap_remove(index).guard.release().await;
                }
                order = hear(&mut starter) => match order {
                    Some(Order::Release) => break,
                    Some(_) => {}
                    None => starter = None,
                },
                (request, mut asker) = next(&mut self.door) => match self.answer(request) {
                    Reply::Released => {
                        answer = Some(asker);
                        break;
                    }
                    reply => drop(asker.tell(&reply).await),
                },
            }
        }
        // From here on a missing socket tells clients that the lock is gone.
        drop(self.door);
        let mut reply = Reply::Released;
        for held in self.held {
            if matches!(held.guard.release().await, Ok(Release::AlreadyLost)) {
                reply = Reply::Lost;
            }
        }
        take::close(&self.locks).await;
        if let Some(mut asker) = answer {
            let _ = asker.tell(&reply).await;
        }
    }

    fn answer(&mut self, request: Request) -> Reply {
        let (Request::Extend { owner, .. } | Request::Release { owner }) = &request;
        let held = self.held.iter().find(|held| held.grant.owner == *owner);
        if held.is_none_or(|held| held.guard.check().is_err()) || now() >= self.until {
            return Reply::Lost;
        }
        match request {
            Request::Release { .. } => Reply::Released,
            Request::Extend { ttl, .. } => match self.locks.capabilities().check_ttl(ttl) {
                Ok(()) => {
                    self.until = now() + ttl;
                    Reply::Extended(self.until)
                }
                Err(error) => Reply::Refused(error.message().to_owned()),
            },
        }
    }
}

/// The socket on which the holder takes requests. Dropping it removes it.
struct Door {
    path: PathBuf,
    visitors: mpsc::Receiver<(Request, Channel)>,
}

impl Door {
    /// Opens a socket at the first of these paths where that works; `None` if there are no paths.
    fn open_first(paths: &[PathBuf]) -> Result<Option<Self>> {
        let mut failed = None;
        for path in paths {
            match Self::open(path) {
                Ok(door) => return Ok(Some(door)),
                Err(error) => failed = Some((path, error)),
            }
        }
        let Some((path, error)) = failed else { return Ok(None) };
        let message = format!(
            "the socket of the holder process cannot be created at {}; set XDG_RUNTIME_DIR to a writable folder that only \
             you can enter",
            path.display()
        );
        Err(Error::new(ErrorKind::Unavailable, message).caused_by(error))
    }

    fn open(path: &Path) -> std::io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let (sender, visitors) = mpsc::channel(16);
        let door = Self { path: path.to_owned(), visitors };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        tokio::spawn(async move {
            while !sender.is_closed() {
                match listener.accept().await {
                    // Each client in a task of its own: a silent client delays no other.
                    Ok((visitor, _)) => drop(tokio::spawn(receive(visitor, sender.clone()))),
                    Err(_) => tokio::time::sleep(TICK / 10).await,
                }
            }
        });
        Ok(door)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn receive(visitor: UnixStream, sender: mpsc::Sender<(Request, Channel)>) {
    let mut channel = Channel::new(visitor);
    if let Ok(Some(request)) = tokio::time::timeout(PATIENCE, channel.hear()).await {
        let _ = sender.send((request, channel)).await;
    }
}

/// The next order of the starter; pending for ever once it is gone.
async fn hear(starter: &mut Option<Channel>) -> Option<Order> {
    match starter {
        Some(starter) => starter.hear().await,
        None => std::future::pending().await,
    }
}

/// The next request; pending for ever if there is no socket.
async fn next(door: &mut Option<Door>) -> (Request, Channel) {
    let visitor = match door {
        Some(door) => door.visitors.recv().await,
        None => None,
    };
    match visitor {
        Some(visitor) => visitor,
        None => std::future::pending().await,
    }
}

/// Waits until `until`.
async fn reached(until: Moment) {
    loop {
        let left = until.since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(TICK)).await;
    }
}
