//! How a lock is taken: the request, and the way from a claim to a guard.

use std::sync::Arc;
use std::time::Duration;

use tollgate_types::{LockName, Mode, Moment, OnDeadlock, OwnerId};

use crate::backend::{Attempt, Release};
use crate::capabilities::Queue;
use crate::claim::{Claim, Details};
use crate::client::Client;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::Grant;
use crate::guard::Guard;
use crate::hold::Limits;
use crate::lease::Lease;
use crate::party::PartyHandle;
use crate::pending::Pending;
use crate::stake::{self, Stake};
use crate::wait_over::{FIRST_ANSWER, WaitOver, silence, unanswered, wait_is_over};

/// How long a caller is kept waiting for an answer it does not need; the rest goes on in the background.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long an engine may take to tell the time for a request that does not want to wait, and three times that to answer the
/// request itself: backends have limits of their own, which say more about what is wrong.
const AT_ONCE: Duration = Duration::from_secs(5);

/// How often a claim that waits asks again because the answer came too late. An engine that is always slower than the ttl
/// will not do better.
const LATE: u32 = 3;

/// Waits for a release, but not for ever.
pub(crate) async fn within_patience(
    clock: &dyn Clock,
    release: impl Future<Output = Result<Release>>,
) -> Result<Release> {
    tokio::select! {
        biased;
        released = release => released,
        () = clock.sleep_until(clock.now() + PATIENCE) => {
            Err(Error::new(ErrorKind::Timeout, "the release is not answered; it continues in the background"))
        }
    }
}

/// The ttl of a lock whose request does not say.
///
/// ```
/// assert_eq!(tollgate::DEFAULT_TTL.as_secs(), 30);
/// ```
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// A request for a lock, to be configured and then acquired.
///
/// Nothing happens before [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or
/// [`run`](Self::run). Their futures may be dropped at any await: the claim is withdrawn then.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-request").await?;
/// use std::time::Duration;
///
/// let guard = locks
///     .lock("orders/42")
///     .ttl(Duration::from_secs(30))
///     .wait(Duration::from_secs(10))
///     .max_hold(Duration::from_secs(600))
///     .meta("job", "nightly")
///     .acquire()
///     .await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a request does nothing until it is acquired"]
#[derive(Clone)]
pub struct LockRequest {
    client: Arc<Client>,
    name: String,
    mode: Result<Mode, u32>,
    ttl: Duration,
    wait: Option<Duration>,
    limits: Limits,
    lock_delay: Duration,
    meta: Vec<(String, String)>,
    party: Option<PartyHandle>,
    on_deadlock: OnDeadlock,
    /// The client that this program asks for, if it is a server.
    on_behalf_of: Option<Box<(OwnerId, Details)>>,
}

impl LockRequest {
    pub(crate) fn new(client: Arc<Client>, name: &str) -> Self {
        Self {
            client,
            name: name.to_owned(),
            mode: Ok(Mode::Exclusive),
            ttl: DEFAULT_TTL,
            wait: None,
            limits: Limits::default(),
            lock_delay: Duration::ZERO,
            meta: Vec::new(),
            party: None,
            on_deadlock: OnDeadlock::Timeout,
            on_behalf_of: None,
        }
    }

    /// The same request for another lock.
    pub(crate) fn named(mut self, name: &LockName) -> Self {
        self.name = name.to_string();
        self
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.client.clock
    }

    /// Shares the lock with every other shared holder.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-shared").await?;
    /// let one = locks.lock("catalogue").shared().acquire().await?;
    /// let two = locks.lock("catalogue").shared().acquire().await?;
    /// assert!(locks.lock("catalogue").try_acquire().await?.is_none(), "a writer has to wait");
    /// # drop((one, two));
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared(mut self) -> Self {
        self.mode = Ok(Mode::Shared);
        self
    }

    /// Takes one of `limit` permits. All permits of a name must have the same limit to be in together.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-permit").await?;
    /// let one = locks.lock("gpu").permit(2).acquire().await?;
    /// let two = locks.lock("gpu").permit(2).acquire().await?;
    /// assert!(locks.lock("gpu").permit(2).try_acquire().await?.is_none());
    /// # drop((one, two));
    /// # Ok(())
    /// # }
    /// ```
    pub fn permit(mut self, limit: u32) -> Self {
        self.mode = Mode::permit(limit).ok_or(limit);
        self
    }

    /// How long the lock lives without renewal; 30 s unless said. The keeper renews it every third of that.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Waits at most this long. Without it [`acquire`](Self::acquire) waits for ever and
    /// [`try_acquire`](Self::try_acquire) not at all.
    pub fn wait(mut self, most: Duration) -> Self {
        self.wait = Some(most);
        self
    }

    /// Gives the lock up after it was held for `most`, whatever the work does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-max-hold").await?;
    /// use std::time::Duration;
    /// use tollgate::LossCause;
    ///
    /// let guard = locks.lock("a").max_hold(Duration::from_millis(20)).acquire().await?;
    /// assert_eq!(guard.lost().await, LossCause::MaxHold);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.limits.max_hold = Some(most);
        self
    }

    /// Gives the lock up when nobody called [`progress`](Lease::progress) for this long.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-stall").await?;
    /// use std::time::Duration;
    /// use tollgate::LossCause;
    ///
    /// let guard = locks.lock("a").stall_after(Duration::from_millis(50)).acquire().await?;
    /// guard.progress(); // again and again, as long as the work goes on
    /// assert_eq!(guard.lost().await, LossCause::Stalled);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stall_after(mut self, silence: Duration) -> Self {
        self.limits.stall_after = Some(silence);
        self
    }

    /// Has nobody renew the lock: it ends with its ttl.
    pub fn no_renew(mut self) -> Self {
        self.limits.no_renew = true;
        self
    }

    /// Keeps the name closed for `delay` if this holder is lost rather than released, so that what it
    /// still had under way can arrive first.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Adds something that people see who look at the lock.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta.push((key.into(), value.into()));
        self
    }

    /// Says which task or transaction this claim belongs to.
    pub fn party(mut self, party: &PartyHandle) -> Self {
        self.party = Some(party.clone());
        self
    }

    /// What becomes of it if its waiting might never end, because its [party](Self::party) holds what others wait for.
    /// Fails with `Deadlock` then: release what the party holds and start over, as [`PartyHandle::retry`] does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-request-on-deadlock").await?;
    /// use tollgate::{ErrorKind, OnDeadlock, PartyHandle};
    ///
    /// let (older, younger) = (PartyHandle::new(), PartyHandle::new());
    /// let held = locks.lock("a").party(&older).on_deadlock(OnDeadlock::WaitDie).acquire().await?;
    /// let refused = locks.lock("a").party(&younger).on_deadlock(OnDeadlock::WaitDie).acquire().await;
    /// assert_eq!(refused.unwrap_err().kind(), ErrorKind::Deadlock, "only the older wait");
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_deadlock(mut self, policy: OnDeadlock) -> Self {
        self.on_deadlock = policy;
        self
    }

    /// Asks for a client of this program, which is a server: with that client's owner id, and showing
    /// that client's details. A repeat with the same owner id finds the same claim.
    #[doc(hidden)]
    pub fn on_behalf_of(mut self, owner: OwnerId, details: Details) -> Self {
        self.on_behalf_of = Some(Box::new((owner, details)));
        self
    }

    /// Removes the claim of [`on_behalf_of`](Self::on_behalf_of) in whatever state it is. Answers
    /// whether the engine answered; the rest goes on in the background.
    #[doc(hidden)]
    pub async fn withdraw(&self) -> Result<bool> {
        Ok(Pending::new(&self.client, self.claim()?).withdraw().await)
    }

    /// Takes the lock, waiting for it as long as [`wait`](Self::wait) says. Fails with `Busy` if that
    /// was not enough, and with `Indeterminate` if the engine did not answer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-acquire").await?;
    /// use std::time::Duration;
    /// use tollgate::ErrorKind;
    ///
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// let late = locks.lock("orders/42").wait(Duration::from_millis(10)).acquire().await;
    /// assert_eq!(late.unwrap_err().kind(), ErrorKind::Busy);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(self) -> Result<Guard> {
        match self.take(self.wait).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "the lock is still busy after {:?}; wait longer, or look up its holder",
                    self.wait.unwrap_or_default()
                ),
            )
            .during("acquire")
            .on(&LockName::new(&self.name)?)),
        }
    }

    /// Takes the lock if it is free, or comes free within [`wait`](Self::wait); `None` if the engine says that it is busy.
    /// Fails with `Indeterminate` if the engine did not answer within the wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-try-acquire").await?;
    /// match locks.lock("orders/42").try_acquire().await? {
    ///     Some(guard) => println!("passage {}", guard.token()),
    ///     None => println!("somebody else does it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(self) -> Result<Option<Guard>> {
        let wait = self.wait.unwrap_or(Duration::ZERO);
        self.take(Some(wait)).await
    }

    /// Takes the lock, runs `work`, and releases it. `work` is cancelled when the lock is lost.
    ///
    /// Fails with `Lost` also if `work` came to its end but the lock had not lasted until then. For work that can fail, and so
    /// has a `Result` of its own, [`try_run`](Self::try_run) returns one `Result` instead of two.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-run").await?;
    /// let rows = locks.lock("report").run(async |lease| {
    ///     lease.check().expect("it was just taken");
    ///     17
    /// }).await?;
    /// assert_eq!(rows, 17);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(self, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let lost = guard.lost();
        let value = tokio::select! {
            biased;
            cause = lost => return Err(guard.lease().hold.lost_error(cause).during("run")),
            value = work(guard.lease()) => value,
        };
        guard.finish().await.map_err(|error| error.during("run"))?;
        Ok(value)
    }

    /// Takes the lock, runs `work` that can fail, and releases it: the error is that of `work`, or of the lock.
    ///
    /// `work` is cancelled when the lock is lost. If it fails by itself its own error is returned, whatever becomes of the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = tollgate::connect("memory:doc-try-run").await?;
    /// let count: Result<u32, Box<dyn std::error::Error>> =
    ///     locks.lock("report").try_run(async |_lease| Ok("17".parse()?)).await;
    /// assert_eq!(count?, 17);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_run<T, E: From<Error>>(
        self,
        work: impl AsyncFnOnce(Lease) -> Result<T, E>,
    ) -> Result<T, E> {
        let guard = self.acquire().await?;
        let lost = guard.lost();
        let outcome = tokio::select! {
            biased;
            cause = lost => return Err(guard.lease().hold.lost_error(cause).during("run").into()),
            outcome = work(guard.lease()) => outcome,
        };
        let finished = guard.finish().await;
        let value = outcome?;
        finished.map_err(|error| error.during("run"))?;
        Ok(value)
    }

    /// From the request to a guard; `None` if the lock is busy for longer than `most`.
    async fn take(&self, most: Option<Duration>) -> Result<Option<Guard>> {
        let started = self.client.clock.now();
        let mut late = 0;
        loop {
            // What was dropped a moment ago may still seem to be held.
            let settling = self.client.background.now() > 0;
            let asked = match self.ask(most, started).await {
                Err(error) if error.kind() == ErrorKind::Deadlock && settling && late < LATE => {
                    late += 1;
                    let clock = &self.client.clock;
                    let patience = most.map_or(Moment::MAX, |most| started + most);
                    tokio::select! {
                        () = self.client.background.none_left() => continue,
                        () = clock.sleep_until(patience.min(clock.now() + PATIENCE)) => {}
                        error = self.client.closing() => return Err(error.during("acquire")),
                    }
                    if clock.now() >= patience {
                        return Err(error);
                    }
                    continue;
                }
                asked => asked?,
            };
            match asked {
                Asked::Held(guard) => return Ok(Some(guard)),
                Asked::Busy => return Ok(None),
                // An engine that stood still answers all at once: whoever would wait asks again.
                Asked::TooLate(_) if most != Some(Duration::ZERO) && late < LATE => late += 1,
                Asked::TooLate(error) => return Err(error),
            }
        }
    }

    /// Asks the engine, and waits until `most` after `started`.
    async fn ask(&self, most: Option<Duration>, started: Moment) -> Result<Asked> {
        let mut claim = self.claim().map_err(|error| error.during("acquire"))?;
        let name = claim.name.clone();
        let named = |error: Error| error.during("acquire").on(&name);
        let (backend, clock) = (&self.client.backend, &*self.client.clock);
        let patience = match most {
            None => Moment::MAX,
            Some(Duration::ZERO) => started + AT_ONCE,
            Some(most) => started + most.max(FIRST_ANSWER),
        };
        if let Some(party) = &self.party {
            claim.details.stake = tokio::select! {
                biased;
                stake = self.stake(party) => stake.map_err(named)?,
                error = self.client.closing() => return Err(named(error)),
                () = clock.sleep_until(patience) => return Err(named(unanswered(most))),
            };
        }
        let pending = Pending::new(&self.client, claim);
        let (closed, asked) = (self.client.closing(), clock.now());
        let mut was_queued = false;
        let grant = match most {
            None => tokio::select! {
                biased;
                grant = stake::acquire(&**backend, clock, pending.claim()) => Some(grant),
                error = closed => return Err(named(error)),
            },
            Some(Duration::ZERO) => {
                let attempt = tokio::select! {
                    biased;
                    attempt = backend.try_acquire(pending.claim()) => attempt.map_err(named)?,
                    () = silence(clock, &pending.claim().wait_status, asked + AT_ONCE * 3) => {
                        drop(WaitOver { client: &self.client, since: asked, answered: false });
                        return Err(named(unanswered(most)));
                    }
                };
                match attempt {
                    Attempt::Granted(grant) => Some(Ok(grant)),
                    Attempt::Busy(_) => {
                        pending.settle();
                        return Ok(Asked::Busy);
                    }
                }
            }
            Some(most) => tokio::select! {
                biased;
                grant = stake::acquire(&**backend, clock, pending.claim()) => Some(grant),
                error = closed => return Err(named(error)),
                queued = wait_is_over(clock, &pending.claim().wait_status, started + most, asked) => {
                    was_queued = queued;
                    None
                }
            },
        };
        let grant = match grant {
            Some(Ok(grant)) => grant,
            // Whoever starts over should not meet itself.
            Some(Err(error)) if error.kind() == ErrorKind::Deadlock => {
                pending.withdraw().await;
                return Err(named(error));
            }
            Some(Err(error)) => return Err(named(error)),
            // Only the engine's answer makes the lock busy, and it must still answer now: it may have stopped since.
            None => {
                let mut over = WaitOver { client: &self.client, since: asked, answered: was_queued };
                if was_queued {
                    over.answered = pending.withdraw().await;
                } else {
                    pending.withdraw_in_background();
                }
                return if over.answered { Ok(Asked::Busy) } else { Err(named(unanswered(most))) };
            }
        };
        let guard = self.hold(pending, grant);
        Ok(match guard.check() {
            Ok(()) => Asked::Held(guard),
            Err(_) => Asked::TooLate(named(too_late())),
        })
    }

    /// What the claim shows of itself, where those who wait look after their policies and not the engine. One without a
    /// policy shows it, too: others may compare their age with its party's.
    async fn stake(&self, party: &PartyHandle) -> Result<Option<Stake>> {
        let backend = &*self.client.backend;
        let capabilities = backend.capabilities();
        if capabilities.detect || capabilities.queue != Queue::Fifo {
            return Ok(None);
        }
        Stake::of(backend, party, self.on_deadlock).await.map(Some)
    }

    /// The grant becomes a guard.
    fn hold(&self, pending: Pending, grant: Grant) -> Guard {
        if let (Some(party), Some(age)) = (&self.party, grant.age) {
            party.note(age);
        }
        let guard = Guard::new(&self.client, grant, self.limits);
        pending.settle();
        guard
    }

    fn claim(&self) -> Result<Claim> {
        self.client.check_open()?;
        let name = LockName::new(&self.name)?;
        let mode = self.mode.map_err(|limit| {
            Error::invalid(format!("a semaphore of {limit} permits can never be acquired; use at least 1"))
        })?;
        let capabilities = self.client.backend.capabilities();
        capabilities.check_name(&name).map_err(|error| error.on(&name))?;
        capabilities.check_mode(mode).map_err(|error| error.on(&name))?;
        capabilities.check_ttl(self.ttl).map_err(|error| error.on(&name))?;
        capabilities.check_lock_delay(self.lock_delay).map_err(|error| error.on(&name))?;
        capabilities.check_on_deadlock(self.on_deadlock).map_err(|error| error.on(&name))?;
        if self.on_deadlock != OnDeadlock::Timeout && self.party.is_none() {
            let message =
                format!("{} compares parties; name this request's party with party()", self.on_deadlock);
            return Err(Error::invalid(message).on(&name));
        }
        for (limit, what) in [(self.limits.max_hold, "max_hold"), (self.limits.stall_after, "stall_after")] {
            if limit == Some(Duration::ZERO) {
                return Err(Error::invalid(format!("{what} of zero would lose the lock at once")).on(&name));
            }
        }
        let mut claim = Claim::new(name, mode, self.ttl);
        claim.details.meta.extend(self.meta.iter().cloned());
        if let Some(client) = &self.on_behalf_of {
            (claim.owner, claim.details) = (**client).clone();
        }
        claim.details.check()?;
        claim.party = self.party.clone();
        claim.on_deadlock = self.on_deadlock;
        claim.lock_delay = self.lock_delay;
        claim.standalone = self.limits.no_renew;
        Ok(claim)
    }
}

/// How the engine answered.
enum Asked {
    Held(Guard),
    Busy,
    /// The grant had ended before anybody could use it.
    TooLate(Error),
}

fn too_late() -> Error {
    let message =
        "the engine's answer took so long that the lock had already expired; try again, or use a longer ttl";
    Error::new(ErrorKind::Lost, message).retryable(true)
}

impl std::fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockRequest")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
