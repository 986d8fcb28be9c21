//! The handle to an engine: what every request starts from.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_types::{LockName, Token};

use crate::agenda::Agenda;
use crate::backend::{Backend, BoxStream, Extension, Revocation};
use crate::capabilities::{Adopt, Capabilities};
use crate::clock::{BootClock, Clock};
use crate::error::{Error, Result};
use crate::grant::{Deadline, Grant};
use crate::guarantees::Guarantee;
use crate::guard::Guard;
use crate::hold::Limits;
use crate::keeper::Keeper;
use crate::lock::LockRequest;
use crate::set::SetRequest;
use crate::state::{Event, LockState};

/// Locks on one engine. Cloning is cheap, and clones are the same client.
#[derive(Clone)]
pub struct Locks {
    client: Arc<Client>,
}

/// What requests, guards and the keeper's tasks of one client share.
pub(crate) struct Client {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Keeper,
    pub(crate) agenda: Arc<Agenda>,
    /// Guards in the program's hands.
    pub(crate) guards: Count,
    /// Releases and withdrawals under way.
    background: Count,
    closed: AtomicBool,
}

impl Locks {
    /// Locks on `backend`.
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        let clock = Arc::new(BootClock::new(Keeper::global()?));
        Self::with_clock(backend, clock)
    }

    /// Locks on `backend` whose deadlines are read from `clock`, for tests.
    pub fn with_clock(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Result<Self> {
        let keeper = Keeper::global()?;
        let agenda = Agenda::start(keeper.clone(), clock.clone());
        let (guards, background) = (Count::default(), Count::default());
        let closed = AtomicBool::new(false);
        Ok(Self { client: Arc::new(Client { backend, clock, keeper, agenda, guards, background, closed }) })
    }

    /// A request for the lock `name`; see [`LockRequest`].
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self.client.clone(), name.as_ref())
    }

    /// A request for several locks, all or nothing; see [`SetRequest`].
    pub fn lock_all<I>(&self, names: I) -> SetRequest
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let names = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        SetRequest::new(self.lock(""), names)
    }

    /// Makes a guard of a grant that came from elsewhere, after renewing it.
    ///
    /// Fails with `Lost` if it is gone. If the engine cannot be asked, the grant's own deadline counts as
    /// long as it is on this host's clock and has not passed.
    pub async fn adopt(&self, grant: Grant) -> Result<Guard> {
        let named = |error: Error| error.during("adopt").on(&grant.name);
        let capabilities = self.client.backend.capabilities();
        let dies_with = match capabilities.adopt {
            Adopt::Any => None,
            // To renew it would be to renew a stranger's session, with all its locks.
            Adopt::Standalone => (!grant.standalone).then_some("session; take the lock with no_renew"),
            Adopt::Never => Some("process"),
        };
        if let Some(what) = dies_with {
            let message =
                format!("a grant of the {} backend lives and dies with its {what}", capabilities.backend);
            return Err(named(Error::unsupported(message)));
        }
        let deadline = match self.client.backend.extend(&grant, grant.ttl, None).await {
            Ok(Extension::Extended { deadline }) => deadline,
            Ok(Extension::Lost { cause }) => {
                let message = format!("the lock is lost: {cause}; take it again");
                return Err(named(Error::new(crate::ErrorKind::Lost, message)));
            }
            Err(error) => match grant.deadline {
                Deadline::At(deadline) if self.client.clock.now() < deadline => grant.deadline,
                _ => return Err(named(error)),
            },
        };
        let guard = Guard::new(&self.client, Grant { deadline, ..grant.clone() }, Limits::default());
        guard.check().map_err(named)?;
        Ok(guard)
    }

    /// What the backend can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.client.backend.capabilities()
    }

    /// Fails with `Unsupported` unless the backend gives `guarantee`.
    pub fn require(&self, guarantee: Guarantee) -> Result<()> {
        self.capabilities().require(guarantee)
    }

    /// Holders and waiters of one lock; `None` when nobody holds it or waits.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LockState>> {
        let name = LockName::new(name)?;
        self.client.backend.inspect(&name).await.map_err(|error| error.during("inspect").on(&name))
    }

    /// Every lock that is held or waited for and whose name starts with `prefix`.
    pub fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<LockState>> {
        self.client.backend.list(prefix)
    }

    /// What happens from now on to locks whose names start with `prefix`: never out of order for a name,
    /// may skip.
    pub fn events<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Event>> {
        self.client.backend.events(prefix)
    }

    /// Breaks the lock of the holder with `token`.
    pub async fn revoke(&self, name: impl AsRef<str>, token: Token) -> Result<Revocation> {
        let name = LockName::new(name)?;
        self.client.backend.revoke(&name, token).await.map_err(|error| error.during("revoke").on(&name))
    }

    /// Refuses new requests, waits for releases and withdrawals under way in the background, and then, if
    /// no guard is left, closes the engine's connections. Guards that are left stay valid.
    ///
    /// Await it before a process ends: what runs in the background ends with the process. While the engine is
    /// out of reach it waits as long as the engine could remember a claim; put a time-out around it.
    pub async fn close(&self) {
        self.client.closed.store(true, Ordering::Release);
        self.client.background.none_left().await;
        if self.client.guards.now() == 0 {
            self.client.backend.close().await;
        }
    }
}

impl Client {
    /// Fails after [`Locks::close`].
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::invalid("these locks were closed; connect again"));
        }
        Ok(())
    }

    /// Runs `work` on the keeper; [`Locks::close`] waits for it.
    pub(crate) fn in_background(
        self: &Arc<Self>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.background.add();
        let client = self.clone();
        self.keeper.spawn(async move {
            work.await;
            client.background.done();
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.agenda.close();
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks").field("backend", &self.capabilities().backend).finish_non_exhaustive()
    }
}

/// A number of things under way that can be waited for.
#[derive(Debug)]
pub(crate) struct Count(watch::Sender<usize>);

impl Default for Count {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Count {
    pub(crate) fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    pub(crate) fn done(&self) {
        self.0.send_modify(|count| *count -= 1);
    }

    fn now(&self) -> usize {
        *self.0.borrow()
    }

    async fn none_left(&self) {
        let mut count = self.0.subscribe();
        // An error would mean that the sender is gone, which `self` is.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}
