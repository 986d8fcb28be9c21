//! The handle to an engine: what every request starts from.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_types::{LockName, Token};

use crate::agenda::Agenda;
use crate::backend::{Backend, BoxStream, Revocation, RevokeMode};
use crate::capabilities::Capabilities;
use crate::clock::{BootClock, Clock};
use crate::count::Count;
use crate::election::Election;
use crate::error::{Error, Result};
use crate::guarantees::Guarantee;
use crate::keeper::Keeper;
use crate::lock::LockRequest;
use crate::rw_lock::RwLock;
use crate::semaphore::Semaphore;
use crate::set::SetRequest;
use crate::state::{Event, LockState};

/// Locks on one engine. Cloning is cheap, and clones are the same client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-locks").await?;
/// let guard = locks.lock("orders/42").acquire().await?;
/// assert!(locks.clone().lock("orders/42").try_acquire().await?.is_none());
/// guard.release().await?;
/// locks.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    pub(crate) client: Arc<Client>,
}

/// What requests, guards and the keeper's tasks of one client share.
pub(crate) struct Client {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Keeper,
    pub(crate) agenda: Arc<Agenda>,
    /// Guards in the program's hands.
    pub(crate) guards: Count,
    /// Requests that may become guards.
    pub(crate) claims: Count,
    /// Releases and withdrawals under way.
    pub(crate) background: Count,
    closed: watch::Sender<bool>,
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
        if let Some(revocations) = backend.revocations() {
            drop(keeper.spawn(agenda.clone().hear(revocations)));
        }
        let (guards, claims, background) = (Count::default(), Count::default(), Count::default());
        let closed = watch::Sender::new(false);
        let client = Client { backend, clock, keeper, agenda, guards, claims, background, closed };
        Ok(Self { client: Arc::new(client) })
    }

    /// A request for the lock `name`; see [`LockRequest`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-lock").await?;
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// assert_eq!(guard.name().as_str(), "orders/42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self.client.clone(), name.as_ref())
    }

    /// The lock `name`, to read or write under; see [`RwLock`].
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.lock(name))
    }

    /// `limit` permits of `name`; see [`Semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore::new(self.lock(name).permit(limit))
    }

    /// The election of a leader; see [`Election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.clone(), name.as_ref())
    }

    /// A request for several locks, all or nothing; see [`SetRequest`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-lock-all").await?;
    /// let both = locks.lock_all(["inventory/9", "payment/7"]).acquire().await?;
    /// both.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all<I>(&self, names: I) -> SetRequest
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let names = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        SetRequest::new(self.lock(""), names)
    }

    /// What the backend can do.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-capabilities").await?;
    /// assert!(locks.capabilities().modes.shared);
    /// # Ok(())
    /// # }
    /// ```
    pub fn capabilities(&self) -> &Capabilities {
        self.client.backend.capabilities()
    }

    /// Fails with `Unsupported` unless the backend gives `guarantee`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-require").await?;
    /// use tollgate::{Fault, Guarantee};
    ///
    /// locks.require(Guarantee::Tokens(Fault::HolderPaused))?;
    /// assert!(locks.require(Guarantee::Exclusion(Fault::HolderPaused)).is_err(), "fence the resource");
    /// # Ok(())
    /// # }
    /// ```
    pub fn require(&self, guarantee: Guarantee) -> Result<()> {
        self.capabilities().require(guarantee)
    }

    /// Holders and waiters of one lock; `None` when nobody holds it or waits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-inspect").await?;
    /// let guard = locks.lock("orders/42").meta("job", "nightly").acquire().await?;
    /// let state = locks.inspect("orders/42").await?.expect("it is held");
    /// assert_eq!(state.holders[0].details.meta["job"], "nightly");
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<LockState>> {
        let name = LockName::new(name).map_err(|error| Error::from(error).during("inspect"))?;
        self.client.backend.inspect(&name).await.map_err(|error| error.during("inspect").on(&name))
    }

    /// Every lock that is held or waited for and whose name starts with `prefix`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-list").await?;
    /// use futures_util::StreamExt;
    ///
    /// let _guard = locks.lock("orders/42").acquire().await?;
    /// let mut held = locks.list("orders/");
    /// while let Some(lock) = held.next().await {
    ///     println!("{:?}", lock?.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        self.client.backend.list(prefix)
    }

    /// What happens from now on to locks whose names start with `prefix`: never out of order for a name,
    /// may skip.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-events").await?;
    /// use futures_util::StreamExt;
    /// use tollgate::Happening;
    ///
    /// let mut events = locks.events("orders/");
    /// let _guard = locks.lock("orders/42").acquire().await?;
    /// let event = events.next().await.expect("it goes on")?;
    /// assert_eq!(event.what, Happening::Granted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        self.client.backend.events(prefix)
    }

    /// Asks the holder with `token` to leave, as an operator does: its guard says `Lost { Revoked }`, and the lock goes to the next
    /// claim when the holder has released it, or when its time is over. `Pending` until then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-revoke").await?;
    /// use tollgate::Revocation;
    ///
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// assert_eq!(locks.revoke("orders/42", guard.token()).await?, Revocation::Pending);
    /// guard.lost().await;
    /// guard.release().await?;
    /// assert!(locks.lock("orders/42").try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(&self, name: impl AsRef<str>, token: Token) -> Result<Revocation> {
        self.revoke_by(name.as_ref(), token, RevokeMode::Ask).await
    }

    /// Takes the lock away from the holder with `token` and hands it on at once. The holder hears of it, but may still be at
    /// work beside the next one: only a fence refuses what it writes then. `Unsupported` where the lock is the operating
    /// system's own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-revoke-by-force").await?;
    /// use tollgate::Revocation;
    ///
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// assert_eq!(locks.revoke_by_force("orders/42", guard.token()).await?, Revocation::Revoked);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke_by_force(&self, name: impl AsRef<str>, token: Token) -> Result<Revocation> {
        self.revoke_by(name.as_ref(), token, RevokeMode::Force).await
    }

    async fn revoke_by(&self, name: &str, token: Token, mode: RevokeMode) -> Result<Revocation> {
        let name = LockName::new(name).map_err(|error| Error::from(error).during("revoke"))?;
        let revoked = self.client.backend.revoke(&name, token, mode).await;
        revoked.map_err(|error| error.during("revoke").on(&name))
    }

    /// Refuses new requests, ends those that wait, waits for releases and withdrawals under way in the background, and then, if
    /// no guard is left, closes the engine's connections. Guards that are left stay valid.
    ///
    /// Await it before a process ends: what runs in the background ends with the process. While the engine is
    /// out of reach it waits as long as the engine could remember a claim; put a time-out around it. Guards are
    /// counted per client: a backend that two clients share is closed by the first that has none left.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-close").await?;
    /// drop(locks.lock("orders/42").acquire().await?);
    /// // The drop releases in the background: without this the process might end first.
    /// locks.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) {
        self.client.closed.send_replace(true);
        self.client.claims.none_left().await;
        self.client.background.none_left().await;
        if self.client.guards.now() == 0 {
            self.client.backend.close().await;
        }
    }
}

impl Client {
    /// Fails after [`Locks::close`].
    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.closed.borrow() { Err(closed()) } else { Ok(()) }
    }

    /// Completes with an error when [`Locks::close`] is called.
    pub(crate) fn closing(&self) -> impl Future<Output = Error> + Send + use<> {
        let mut closes = self.closed.subscribe();
        async move {
            // An error would mean that the client is gone, and with it whoever waits for this.
            let _ = closes.wait_for(|closed| *closed).await;
            closed()
        }
    }

    /// Runs `work` on the keeper; [`Locks::close`] waits for it.
    pub(crate) fn in_background<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let counted = self.background.one();
        self.keeper.spawn(async move {
            let done = work.await;
            drop(counted);
            done
        })
    }
}

fn closed() -> Error {
    Error::invalid("this client was closed; connect again")
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
