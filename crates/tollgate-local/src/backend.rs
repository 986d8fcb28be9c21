//! The contract's side: what each call means for files, and on which thread it is done.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error,
    ErrorKind, Event, Extension, Grant, Keeper, LockName, LockState, LossCause, Release, Result, Revocation,
    RevokeMode, Token, events,
};

use crate::capabilities::capabilities;
use crate::dir::{FilePath, Names};
use crate::error::Trouble;
use crate::folder::Folder;
use crate::idle::Idle;
use crate::lost::{self, Looking};
use crate::registry::{Phase, Registry};
use crate::steps::Shared;
use crate::view;
use crate::waiter::Waiters;

/// How often locks are looked at for events.
const EVENTS_EVERY: Duration = Duration::from_millis(100);
/// How long a holder that was asked to leave is waited for, and how often it is looked at.
const REVOKE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(20));

/// Locks of one host: kernel byte locks on files in a folder.
///
/// Several backends on one folder exclude each other, in one process as in many.
pub struct FileBackend {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

impl std::fmt::Debug for FileBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileBackend").field("folder", &self.shared.folder).finish_non_exhaustive()
    }
}

impl FileBackend {
    /// Opens the locks in `dir`. Does file I/O. If there is no such folder, the first lock makes it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate_core::{Backend, BootClock, Keeper};
    ///
    /// # let dir = tempfile::tempdir().expect("a folder");
    /// let keeper = Keeper::global()?;
    /// let clock = Arc::new(BootClock::new(keeper.clone()));
    /// let backend = tollgate_local::FileBackend::open(dir.path(), clock, keeper)?;
    /// assert_eq!(backend.capabilities().backend, "file");
    /// # Ok::<(), tollgate_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `dir` cannot hold locks: not a folder, not writable, on a network file
    /// system, of another layout, or with a damaged token counter. [`ErrorKind::Unavailable`] if the disk
    /// is full or too many files are open.
    pub fn open(dir: impl AsRef<Path>, clock: Arc<dyn Clock>, keeper: Keeper) -> Result<Self> {
        let folder = Folder::open(dir.as_ref()).map_err(|trouble| Error::from(trouble).during("open"))?;
        let shared = Arc::new_cyclic(|this| Shared {
            folder,
            registry: Registry::default(),
            waiters: Arc::new(Waiters::default()),
            idle: Idle::default(),
            looking: Looking::default(),
            clock,
            keeper,
            stalls_until: AtomicU64::new(0),
            process: std::process::id(),
            this: this.clone(),
        });
        Ok(Self { shared, capabilities: capabilities() })
    }

    /// Makes every later token of every lock larger than `floor`, as a move from another engine needs it.
    ///
    /// # Errors
    /// As [`open`](Self::open); then some tokens may be raised and others not, and it can be repeated.
    pub async fn raise_floor(&self, floor: Token) -> Result<()> {
        self.blocking("raise the floor", move |shared| shared.folder.counters()?.raise(floor)).await
    }

    /// Runs `work` on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Shared) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T> {
        let shared = self.shared.clone();
        match self.shared.keeper.spawn_blocking(move || work(&shared)).await {
            Ok(result) => result.map_err(|trouble| Error::from(trouble).during(operation)),
            Err(error) => Err(Error::new(ErrorKind::Unexpected, "a file operation panicked")
                .caused_by(error)
                .during(operation)),
        }
    }

    /// Fails in a child that was forked: it shares the parent's open files, and with them its locks.
    fn check_process(&self) -> Result<()> {
        if std::process::id() == self.shared.process {
            return Ok(());
        }
        Err(Error::unsupported(
            "this client belongs to the process that this one was forked from; connect again in this \
             process",
        ))
    }

    async fn take(&self, claim: &Claim, wait: bool) -> Result<Attempt> {
        let fail = |error: Error| error.during("acquire").on(&claim.name);
        self.check_process().map_err(fail)?;
        if let Some(slot) = self.shared.registry.find(claim.owner)
            && let Phase::Held(_, token) = slot.lock().phase
        {
            return Ok(Attempt::Granted(slot.grant(token)));
        }
        let (slot, outcome) = self.shared.registry.enter(claim).map_err(fail)?;
        match self.shared.take_at_once(&slot) {
            // Not kept here: a claim that was withdrawn meanwhile is answered by being forgotten.
            Ok(()) => drop(slot),
            Err(kept) => {
                let shared = self.shared.clone();
                // Not awaited: if this future is dropped, the claim is withdrawn by its owner id.
                drop(self.shared.keeper.spawn_blocking(move || shared.take(&slot, kept, wait)));
            }
        }
        match outcome.await {
            Ok(outcome) => outcome.map_err(fail),
            Err(_) => Err(fail(Error::new(
                ErrorKind::Unavailable,
                "the claim was withdrawn while it was being taken",
            ))),
        }
    }
}

impl Backend for FileBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.take(claim, false))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            match self.take(claim, true).await? {
                Attempt::Granted(grant) => Ok(grant),
                Attempt::Busy(_) => {
                    Err(Error::new(ErrorKind::Unexpected, "the backend answered busy to a claim that waits")
                        .during("acquire")
                        .on(&claim.name))
                }
            }
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(slot) = self.shared.registry.find(claim.owner) else { return Ok(()) };
            let withdraw = move |shared: &Shared| {
                shared.withdraw(&slot);
                Ok(())
            };
            self.blocking("withdraw", withdraw).await.map_err(|error| error.on(&claim.name))
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        _ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            let gone = Extension::Lost { cause: LossCause::Gone };
            let Some((slot, place)) = self.shared.registry.held(grant) else { return Ok(gone) };
            let details = details.cloned();
            let work = move |_: &Shared| {
                let held = place.is_held()?;
                if let (true, Some(details)) = (held, details) {
                    place.describe(&details)?;
                }
                Ok(held)
            };
            let held = self.blocking("extend", work).await.map_err(|error| error.on(&grant.name))?;
            // It may have been released while the files were looked at.
            let held = held && slot.lock().holds(grant, &slot.claim).is_some();
            Ok(if held { Extension::Extended { deadline: Deadline::Never } } else { gone })
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            self.check_process().map_err(|error| error.during("release").on(&grant.name))?;
            let Some(slot) = self.shared.registry.find(grant.owner) else { return Ok(Release::AlreadyLost) };
            let place = {
                let mut state = slot.lock();
                let Some(place) = state.holds(grant, &slot.claim) else { return Ok(Release::AlreadyLost) };
                state.phase = Phase::Working;
                place
            };
            let ours = place.is_current();
            if let Err(place) = self.shared.leave_at_once(&slot, place) {
                let leave = move |shared: &Shared| {
                    shared.leave(&slot, &place);
                    Ok(())
                };
                self.blocking("release", leave).await.map_err(|error| error.on(&grant.name))?;
            }
            Ok(if ours { Release::Released } else { Release::AlreadyLost })
        })
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        Some(Box::pin(lost::wait(self.shared.clone(), grant)))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move {
            let wanted = name.clone();
            let look = move |shared: &Shared| match shared.folder.file_if_made(&wanted)? {
                Some(file) => view::look(&file),
                None => Ok(None),
            };
            self.blocking("inspect", look).await.map_err(|error| error.on(name))
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let prefix: Arc<str> = prefix.into();
        let locks = stream::try_unfold(None, move |files: Option<Names>| {
            let prefix = prefix.clone();
            self.blocking("list", move |shared| next_lock(shared, files, &prefix))
        });
        // A file that cannot be read is told of, and the others are listed all the same.
        Box::pin(
            locks.map(|lock| {
                lock.and_then(|lock| lock.map_err(|trouble| Error::from(trouble).during("list")))
            }),
        )
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        // All processes of the host read the same clock.
        let now = self.shared.clock.now().as_nanos() / 1000;
        Box::pin(std::future::ready(Ok(Age(now))))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.shared.clock.clone(), prefix, EVENTS_EVERY)
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            if mode == RevokeMode::Force {
                return Err(Error::unsupported(
                    "locks of the operating system cannot be taken away by force; ask the holder to leave, \
                     or end its process",
                )
                .on(name));
            }
            let clock = &self.shared.clock;
            let ask = || {
                let name = name.clone();
                self.blocking("break", move |shared| match shared.folder.file_if_made(&name)? {
                    Some(file) => view::ask_to_leave(&file, &name, token),
                    None => Ok(false),
                })
            };
            if !ask().await.map_err(|error| error.on(name))? {
                return Ok(Revocation::NotHeld);
            }
            let (patience, pause) = REVOKE;
            let deadline = clock.now() + patience;
            while clock.now() < deadline {
                clock.sleep_until(clock.now() + pause).await;
                if !ask().await.map_err(|error| error.on(name))? {
                    return Ok(Revocation::Revoked);
                }
            }
            Ok(Revocation::Pending)
        })
    }

    fn descriptor(&self, grant: &Grant) -> Result<OwnedFd> {
        let Some((_, place)) = self.shared.registry.held(grant) else {
            return Err(Error::new(ErrorKind::Lost, "this process does not hold the lock").on(&grant.name));
        };
        place.descriptor().map_err(|trouble| Error::from(trouble).on(&grant.name))
    }

    fn bequeath(&self, grant: &Grant) -> Result<OwnedFd> {
        let not_held = || Error::new(ErrorKind::Lost, "this process does not hold the lock").on(&grant.name);
        let slot = self.shared.registry.find(grant.owner).ok_or_else(not_held)?;
        let lock = {
            let mut state = slot.lock();
            let place = state.holds(grant, &slot.claim).ok_or_else(not_held)?;
            let lock = place.descriptor().map_err(|trouble| Error::from(trouble).on(&grant.name))?;
            state.phase = Phase::Working;
            lock
        };
        // The bytes stay locked: they belong to the open description, and `lock` is one, too.
        self.shared.registry.end(&slot);
        Ok(lock)
    }

    fn inherit<'a>(&'a self, grant: &'a Grant, lock: OwnedFd) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let claim = Claim { owner: grant.owner, ..Claim::new(grant.name.clone(), grant.mode, grant.ttl) };
            let (slot, _nobody_waits) = self.shared.registry.enter(&claim)?;
            let token = grant.token;
            let inherited = self.blocking("inherit", move |shared| shared.inherit(&slot, token, lock)).await;
            if inherited.map_err(|error| error.on(&grant.name))? {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Lost, "the descriptor does not hold the lock; take the lock again")
                .on(&grant.name))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let close = |shared: &Shared| {
                shared.abandon_waiters();
                shared.idle.clear(shared, None);
                Ok(())
            };
            // There is nobody left to tell.
            let _ = self.blocking("close", close).await;
        })
    }
}

impl Drop for FileBackend {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        drop(self.shared.keeper.spawn_blocking(move || {
            shared.abandon_waiters();
            shared.idle.clear(&shared, None);
        }));
    }
}

/// Whether a file has the name of a lock's file. Others are not ours to look at, let alone to remove.
pub(crate) fn is_lock_file(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit)
}

/// A lock, or what is wrong with its file; and the files that are left.
type Next = (Result<LockState, Trouble>, Option<Names>);

/// The next lock of the folder that somebody uses and whose name starts with `prefix`, and the rest.
fn next_lock(shared: &Shared, files: Option<Names>, prefix: &str) -> Result<Option<Next>, Trouble> {
    // No lock was ever taken here, or the folder was removed.
    let Some(prepared) = shared.folder.prepared_if_made()? else { return Ok(None) };
    let folder = prepared.locks();
    let mut files = match files {
        Some(files) => files,
        None if !folder.is_in_place()? => return Ok(None),
        None => folder.names()?,
    };
    while let Some(name) = files.next() {
        let name = name.map_err(Trouble::at(folder.path()))?;
        if !is_lock_file(&name) {
            continue;
        }
        let file = FilePath::new(folder, name);
        match view::look(&file) {
            Ok(Some(state)) if state.name.as_str().starts_with(prefix) => {
                return Ok(Some((Ok(state), Some(files))));
            }
            Ok(Some(_)) => {}
            // What a killed process left behind. It is somebody else's to clear away if we may not.
            Ok(None) => drop(view::clear_away(&file)),
            Err(trouble) => return Ok(Some((Err(trouble), Some(files)))),
        }
    }
    Ok(None)
}
