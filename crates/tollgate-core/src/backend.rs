//! The contract between the core and an engine. Small for those who implement it; [`Locks`](crate::Locks)
//! and [`Guard`](crate::Guard) are the rich side.
//!
//! The contract speaks of engines, not of guards: who renews, what a caller sees and when a loss is
//! signalled is decided once, in this crate. What a backend owes, whatever it is built on:
//!
//! - **One rule for all modes.** Claims on a name form one queue; a claim is granted when
//!   [`Mode::joins`](tollgate_types::Mode::joins) says so of the claims before it.
//! - **Tokens** are assigned in the same atomic step that decides the grant, unique and rising per name.
//! - **Deadlines** count from the moment a request was *sent*, never from when its reply was read
//!   ([`Deadline::counted_from`]).
//! - **Unknown is not held.** A reply that did not come is [`ErrorKind::Indeterminate`](crate::ErrorKind),
//!   and nothing repeats an unknown outcome. A backend may repeat only what its engine says it did not execute, or what keeps
//!   all copies before it from being executed later.
//! - **Futures may be dropped at any await**, and run on any thread: the caller's tokio runtime or the
//!   [keeper](crate::Keeper)'s. They never block. Requests that a caller waits for (acquire, release, an
//!   extend by `ensure`) run on the caller's, renewals and everything in the background on the keeper's. What
//!   must go on when the caller's executor does not (a
//!   session's renewal, a connection that renewals use) is spawned on the keeper.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use tollgate_types::{Age, LockName, OwnerId, Token};

use crate::capabilities::Capabilities;
use crate::claim::{Claim, Details};
pub use crate::clock::BoxFuture;
use crate::error::{Error, Result};
use crate::grant::{Deadline, Grant};
use crate::state::{Event, LockState};

/// A stream that can be stored and sent.
pub type BoxStream<'a, T> = Pin<Box<dyn Stream<Item = T> + Send + 'a>>;

/// An engine that gives locks.
pub trait Backend: Send + Sync + 'static {
    /// What this backend can do. Always the same answer.
    fn capabilities(&self) -> &Capabilities;

    /// Takes the lock now or not at all.
    ///
    /// - `Busy` means that nothing of the claim is left at the engine, not even a place in the queue.
    /// - The same claim tried again while it is held answers with the same token, and a deadline that counts
    ///   from no later than the first send (a shared session's: from its last renewal), or it fails.
    /// - A repetition that arrives after the claim ended may be granted anew, an orphan that ends with its ttl,
    ///   or be [`ErrorKind::Lost`](crate::ErrorKind); where nothing would end it, it must be the latter.
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>>;

    /// Waits until the lock is granted. Engines without a queue use [`wait::poll`](crate::wait::poll).
    ///
    /// - First come, first served where `capabilities().queue` is `Fifo`, in the order in which the engine got
    ///   the claims; a release wakes one waiter.
    /// - A waiter whose session ended is never granted; its future fails with [`ErrorKind::Lost`](crate::ErrorKind).
    /// - A standalone claim is kept alive while it waits, and by nobody once it is granted.
    /// - A waiter whose process died does not hold up the queue.
    /// - An engine that is away is an error for a claim that it has not answered yet. One that waits goes on
    ///   waiting ([`wait::Outage`](crate::wait::Outage)).
    /// - When the future is dropped the claim may still be queued, or granted: the core calls
    ///   [`withdraw`](Self::withdraw) then.
    /// - When it returns an error, too.
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>>;

    /// Makes sure that nothing of `claim` is left: it leaves the queue or, if it has become the holder,
    /// releases and hands on.
    ///
    /// - Called after an acquire was dropped or its outcome is unknown, once or several times, also for a
    ///   claim the engine never saw: all that is `Ok`.
    /// - After `Ok` the claim is never granted: a withdraw must not overtake the acquire it withdraws. It
    ///   goes over the acquire's own connection, or is repeated once that has answered or closed.
    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>>;

    /// Renews a grant to `ttl` from now, and replaces its details if some are given.
    ///
    /// - Acts only if the grant with this owner id is still the holder, compared and acted on atomically.
    /// - Session engines answer with what their session's own renewal has reached, and make it renew at
    ///   once if that is older than a sixth of the ttl. They also find out whether this very grant is still
    ///   there, unless [`lost`](Self::lost) tells; a ttl that differs from the session's is
    ///   [`ErrorKind::Unsupported`](crate::ErrorKind).
    /// - Where nothing expires, answers `Deadline::Never` while the lock is held.
    /// - May be called again while an earlier call for the same grant has not been answered.
    /// - Details of a smaller [`revision`](Details::revision) than those that are there replace nothing: a request may arrive after
    ///   a later one.
    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>>;

    /// Gives the lock back and hands it to the next.
    ///
    /// - Acts only on the grant with this owner id, compared and acted on atomically.
    /// - May be repeated: `AlreadyLost` if there was nothing left to release.
    /// - The grant's deadline is the one that its last renewal has reached, as far as this process knows: a lock that is
    ///   gone before it was not left to expire.
    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>>;

    /// Completes when the engine tells, unasked, that the grant is lost: a session ended, an operator asked
    /// the holder to leave. `None` where the engine does not tell; renewals find out then.
    ///
    /// - Tells what the engine said, nothing else: whether a deadline has passed is the core's to decide.
    /// - [`LossCause::Gone`] at once for a grant that is not held here; pending for ever after a release.
    /// - Called on the keeper, some milliseconds after the grant at the earliest; for a lease not before its
    ///   first renewal is due.
    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        let _ = grant;
        None
    }

    /// Holders and waiters of one lock; `None` when nobody holds it or waits.
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>>;

    /// Every lock that is held or waited for and whose name starts with `prefix`. An error may be about one
    /// lock that cannot be read; the stream goes on if it can.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>>;

    /// What happens from now on to locks whose names start with `prefix`: never out of order for a name,
    /// may skip. Engines that cannot tell use [`events::poll`](crate::events::poll).
    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>>;

    /// Whether the engine itself tells of [`events`](Self::events), so that to follow them costs nothing while nothing happens.
    /// Where it does not they are found by listing everything again and again, and whoever follows one lock looks at that lock
    /// alone.
    fn tells_events(&self) -> bool {
        false
    }

    /// Breaks the lock of the holder with `token`, as an operator or an older party does.
    ///
    /// [`RevokeMode::Ask`] marks the grant and tells the holder:
    ///
    /// - The grant is not renewed any more: [`extend`](Self::extend) answers `Lost { Revoked }` and changes nothing.
    /// - The holder keeps the lock until it releases it, or until the time that its last renewal gave it is over; where nothing
    ///   expires, until its connection or process ends. No claim that it keeps out is granted before.
    /// - The holder is told at once where the engine can tell it ([`lost`](Self::lost), [`revocations`](Self::revocations)), and
    ///   by its next renewal otherwise.
    /// - Answers `Pending`, or `Revoked` if the holder has left by then. May be repeated.
    ///
    /// [`RevokeMode::Force`] ends the grant at once and hands the lock on, whatever the holder is doing. Its `extend` answers
    /// `Lost { Revoked }`, too.
    ///
    /// `NotHeld` if no grant has that token.
    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>>;

    /// The owner ids of grants that were revoked, as the engine tells of them: a hint that comes before the next renewal.
    /// Called once for each client. `None` where the engine does not tell.
    ///
    /// Ends when the backend is dropped, and does not keep it alive.
    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        None
    }

    /// The engine's time, for a party's first claim: a number that later parties get a larger one than, as near as the
    /// engine can tell. Only where there is a queue.
    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        let backend = self.capabilities().backend;
        let none = Error::unsupported(format!("the {backend} backend cannot report its engine's time"));
        Box::pin(std::future::ready(Err(none)))
    }

    /// An open file that a child process can inherit, so that the lock is held as long as either lives.
    /// Only where the lock hangs on a descriptor; close-on-exec is set.
    fn descriptor(&self, grant: &Grant) -> Result<OwnedFd> {
        let _ = grant;
        Err(no_descriptor(self.capabilities()))
    }

    /// Lets the lock go into another process's hands: from here on this process knows nothing of the grant,
    /// and the lock is held as long as the open file, or a copy of it, is. Only where the lock hangs on a
    /// descriptor; close-on-exec is set.
    ///
    /// - [`ErrorKind::Lost`](crate::ErrorKind) for a grant that is not held here. After any error the grant is
    ///   held here as before.
    fn bequeath(&self, grant: &Grant) -> Result<OwnedFd> {
        let _ = grant;
        Err(no_descriptor(self.capabilities()))
    }

    /// Takes over a lock that another process [bequeathed](Self::bequeath), or whose
    /// [descriptor](Self::descriptor) it shares: this process holds it from here on, and those who look see
    /// this process.
    ///
    /// - Checks that `lock` really holds this grant, and answers [`ErrorKind::Lost`](crate::ErrorKind) if not.
    /// - After an error `lock` is closed, and nothing else was done to the grant.
    fn inherit<'a>(&'a self, grant: &'a Grant, lock: OwnedFd) -> BoxFuture<'a, Result<()>> {
        let _ = (grant, lock);
        Box::pin(std::future::ready(Err(no_descriptor(self.capabilities()))))
    }

    /// The core tells what becomes of a grant in this process, for [layers](crate::layer) that watch. Engines
    /// need not listen.
    fn note(&self, note: &Note<'_>) {
        let _ = note;
    }

    /// Closes sessions and connections. What is still held is left to its owner id and ttl.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What the core tells of a grant or claim.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Note<'a> {
    /// It is in this process's hands.
    Held(&'a Grant),
    /// It is no more: released, handed on or lost.
    Ended {
        /// What it was.
        grant: &'a Grant,
        /// Why.
        cause: LossCause,
        /// How long it was held here.
        held: Duration,
    },
    /// A request whose time to wait is over gave up.
    WaitOver {
        /// How long it had waited.
        waited: Duration,
        /// Whether the engine still answered: without an answer the lock is not known to be busy.
        answered: bool,
    },
    /// A renewal failed, or was not answered in time.
    RenewalFailed(&'a Grant),
    /// A release or withdrawal of this lock is not answered, and is repeated.
    Stuck(&'a LockName),
    /// It was answered after all, or the engine has forgotten the claim by itself.
    Unstuck(&'a LockName),
}

fn no_descriptor(capabilities: &Capabilities) -> Error {
    Error::unsupported(format!(
        "a lock of the {} backend cannot be handed to another process; keep it in the process that does \
         the work, as tollgate run does",
        capabilities.backend
    ))
}

/// How an attempt to take a lock at once ended.
#[derive(Debug)]
pub enum Attempt {
    /// It is ours.
    Granted(Grant),
    /// It is somebody else's.
    Busy(Contention),
}

/// What is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contention {
    /// How many claims are ahead, where the engine tells.
    pub ahead: Option<usize>,
    /// After how long a new attempt may have better luck, where the engine tells.
    pub retry_after: Option<Duration>,
}

/// How a renewal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// The grant lives on.
    Extended {
        /// Until when.
        deadline: Deadline,
    },
    /// The engine has no such grant any more.
    Lost {
        /// What became of it, as far as the engine can tell.
        cause: LossCause,
    },
}

/// How a release ended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-release-type").await?;
/// use tollgate::Release;
///
/// let guard = locks.lock("a").acquire().await?;
/// match guard.release().await? {
///     Release::Released => println!("nobody else was in"),
///     Release::AlreadyLost => println!("somebody may have been: look at what was done"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It was ours and is not any more.
    Released,
    /// It had been lost before; somebody else may have been in.
    AlreadyLost,
}

/// How a lock is broken.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-revoke-mode").await?;
/// use tollgate::{LossCause, Revocation};
///
/// let guard = locks.lock("a").acquire().await?;
/// // RevokeMode::Ask: the holder is told, and the lock waits for it to leave.
/// assert_eq!(locks.revoke("a", guard.token()).await?, Revocation::Pending);
/// assert_eq!(guard.lost().await, LossCause::Revoked);
/// assert!(locks.lock("a").try_acquire().await?.is_none());
/// // RevokeMode::Force: the lock is free, whatever the holder is doing.
/// assert_eq!(locks.revoke_by_force("a", guard.token()).await?, Revocation::Revoked);
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RevokeMode {
    /// The holder is told to leave. The lock is handed on when it has left, or when its time is over.
    Ask,
    /// The lock is handed on at once, while the holder may still be at work.
    Force,
}

/// How breaking a lock ended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-revocation").await?;
/// use tollgate::Revocation;
///
/// let guard = locks.lock("a").acquire().await?;
/// let token = guard.token();
/// guard.release().await?;
/// assert_eq!(locks.revoke("a", token).await?, Revocation::NotHeld);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// The holder is out.
    Revoked,
    /// The holder was asked to leave and has not left yet. It is not renewed any more.
    Pending,
    /// Nobody holds the lock with that token.
    NotHeld,
}

/// Why a grant is lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-loss-cause").await?;
/// use tollgate::LossCause;
///
/// let guard = locks.lock("a").acquire().await?;
/// let lost = guard.lost();
/// guard.release().await?;
/// assert_eq!(lost.await, LossCause::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The deadline passed without a renewal.
    Expired,
    /// The engine no longer has the grant: it expired there, or was deleted.
    Gone,
    /// An operator broke the lock.
    Revoked,
    /// The session or connection it hung on ended.
    SessionEnded,
    /// It was held for as long as `max_hold` allows.
    MaxHold,
    /// The work made no progress for as long as `stall_after` allows.
    Stalled,
    /// It was given back; only views that outlive their guard see this.
    Released,
}

impl LossCause {
    /// One word, for labels.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::Revoked => "revoked",
            Self::SessionEnded => "session_ended",
            Self::MaxHold => "max_hold",
            Self::Stalled => "stalled",
            Self::Released => "released",
        }
    }
}

impl std::fmt::Display for LossCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired => "it was not renewed in time",
            Self::Gone => "the engine no longer has it",
            Self::Revoked => "an operator broke it",
            Self::SessionEnded => "its session ended",
            Self::MaxHold => "it was held for as long as max_hold allows",
            Self::Stalled => "the work made no progress for as long as stall_after allows",
            Self::Released => "it was released",
        })
    }
}
