//! What a guard believes of its grant, and the one place that decides it is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_types::{Mode, Moment};

use crate::backend::{Backend, LossCause, Note};
use crate::claim::Details;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::Fence;
use crate::grant::{Deadline, Grant};
use crate::states::States;
use crate::told::Told;

/// Whether a guard may be relied on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-guard-state").await?;
/// use tollgate::GuardState;
///
/// let guard = locks.lock("orders/42").acquire().await?;
/// match guard.state() {
///     GuardState::Held => println!("go on"),
///     GuardState::Jeopardy => println!("go on, but start nothing new"),
///     GuardState::Lost { cause } => println!("stop: {cause}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardState {
    /// Yes.
    Held,
    /// Still, but a renewal failed or is late.
    Jeopardy,
    /// No, and never again.
    Lost {
        /// Why.
        cause: LossCause,
    },
}

/// What the user asked for beside the lock itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Given up after this long.
    pub(crate) max_hold: Option<Duration>,
    /// Given up when nobody reported progress for this long.
    pub(crate) stall_after: Option<Duration>,
    /// Nobody renews it.
    pub(crate) no_renew: bool,
}

/// A grant in this process's hands: shared by the guard, its leases and the keeper.
///
/// Times are nanoseconds of the clock; `u64::MAX` is [`Moment::MAX`], the end of time.
pub(crate) struct Hold {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) grant: Grant,
    limits: Limits,
    /// Until when the engine's answers allow us to believe in it.
    lease: AtomicU64,
    /// How long before that a renewal is late.
    lateness: AtomicU64,
    /// Since when it is in this process's hands.
    pub(crate) since: Moment,
    /// When `max_hold` is over.
    hold_end: Moment,
    /// When progress was last reported.
    progress: AtomicU64,
    /// The last word on the state. `Lost` is written once and stays.
    told: Told,
    /// What the last renewal failed with.
    trouble: Mutex<Option<Box<str>>>,
    /// Wakes the keeper's task: something changed.
    pub(crate) nudge: Notify,
}

impl Hold {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        grant: Grant,
        limits: Limits,
    ) -> Self {
        let now = clock.now();
        let hold = Self {
            lease: AtomicU64::new(0),
            lateness: AtomicU64::new(0),
            since: now,
            hold_end: limits.max_hold.map_or(Moment::MAX, |most| now + most),
            progress: AtomicU64::new(now.as_nanos()),
            told: Told::new(GuardState::Held),
            trouble: Mutex::default(),
            nudge: Notify::new(),
            backend,
            clock,
            limits,
            grant,
        };
        hold.believe_until(hold.grant.deadline, now);
        hold.backend.note(&Note::Held(&hold.grant));
        hold
    }

    /// The state now. Reads the clock: no timer is trusted, and none needs to have fired.
    pub(crate) fn state(&self) -> GuardState {
        let told = self.told.get();
        if matches!(told, GuardState::Lost { .. }) {
            return told;
        }
        self.state_at(self.clock.now(), told)
    }

    /// The state at a time that was just read, after what was told so far.
    fn state_at(&self, now: Moment, told: GuardState) -> GuardState {
        let (deadline, cause) = self.deadline();
        if now >= deadline {
            self.lose_at(now, cause);
            return self.told.get();
        }
        if now >= self.late() { GuardState::Jeopardy } else { told }
    }

    /// It is over because the guard is: the state until now.
    pub(crate) fn end(&self) -> GuardState {
        let (now, told) = (self.clock.now(), self.told.get());
        if matches!(told, GuardState::Lost { .. }) {
            return told;
        }
        let before = self.state_at(now, told);
        self.lose_at(now, LossCause::Released);
        before
    }

    /// When the guard stops being held unless something happens before, and what the cause will be.
    pub(crate) fn deadline(&self) -> (Moment, LossCause) {
        let lease = (self.lease_end(), LossCause::Expired);
        let hold = (self.hold_end, LossCause::MaxHold);
        let stall = match self.limits.stall_after {
            Some(after) => Moment::from_nanos(self.progress.load(Ordering::Acquire)) + after,
            None => Moment::MAX,
        };
        [hold, (stall, LossCause::Stalled)]
            .into_iter()
            .fold(lease, |first, other| if other.0 < first.0 { other } else { first })
    }

    /// The grant with the deadline that its renewals have reached; `None` if that is the one it was given with.
    pub(crate) fn as_renewed(&self) -> Option<Box<Grant>> {
        let deadline = Deadline::At(self.lease_end());
        let renewed = matches!(self.grant.deadline, Deadline::At(_)) && deadline != self.grant.deadline;
        renewed.then(|| Box::new(Grant { deadline, ..self.grant.clone() }))
    }

    /// Until when the engine's answers allow us to believe in it.
    pub(crate) fn lease_end(&self) -> Moment {
        Moment::from_nanos(self.lease.load(Ordering::Acquire))
    }

    /// The time left; `None` where nothing ends it.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        if matches!(self.state(), GuardState::Lost { .. }) {
            return Some(Duration::ZERO);
        }
        let (deadline, _) = self.deadline();
        (deadline != Moment::MAX).then(|| deadline.since(self.clock.now()))
    }

    /// From when on a renewal is late: a quarter of the ttl is left, or of what was left when the deadline was told.
    pub(crate) fn late(&self) -> Moment {
        let lease = self.lease_end();
        if self.limits.no_renew || lease == Moment::MAX {
            return Moment::MAX;
        }
        lease - Duration::from_nanos(self.lateness.load(Ordering::Acquire))
    }

    /// Whether the keeper renews it. Where nothing expires a renewal is how a loss is noticed.
    pub(crate) fn is_renewed(&self) -> bool {
        !self.limits.no_renew || self.grant.deadline == Deadline::Never
    }

    /// Fails unless the lock is held.
    pub(crate) fn check(&self) -> Result<()> {
        match self.state() {
            GuardState::Lost { cause } => Err(self.lost_error(cause)),
            GuardState::Held | GuardState::Jeopardy => Ok(()),
        }
    }

    pub(crate) fn lost_error(&self, cause: LossCause) -> Error {
        Error::new(
            ErrorKind::Lost,
            format!("the lock is lost: {cause}; stop the work, or take the lock again"),
        )
        .on(&self.grant.name)
    }

    /// The engine answered a renewal. Never revives what is lost.
    pub(crate) fn renewed(&self, deadline: Deadline) {
        self.note_trouble(None);
        self.believe_until(deadline, self.clock.now());
        self.told.change(|told| (told == GuardState::Jeopardy).then_some(GuardState::Held));
    }

    /// The latest deadline counts: with one ttl, what the engine holds never gets shorter by a renewal.
    fn believe_until(&self, deadline: Deadline, now: Moment) {
        let nanos = match deadline {
            Deadline::At(moment) => moment.as_nanos(),
            Deadline::Never => u64::MAX,
            Deadline::Unknown => 0,
        };
        if self.lease.fetch_max(nanos, Ordering::AcqRel) < nanos {
            let left = Moment::from_nanos(nanos).since(now);
            let late = (self.grant.ttl.min(left) / 4).as_nanos();
            self.lateness.store(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Release);
        }
    }

    /// A renewal failed, or was not answered in time.
    pub(crate) fn renewal_failed(&self) {
        self.backend.note(&Note::RenewalFailed(&self.grant));
        self.told.change(|told| (told == GuardState::Held).then_some(GuardState::Jeopardy));
    }

    fn note_trouble(&self, trouble: Option<&str>) {
        let mut noted = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.is_some() || noted.is_some() {
            *noted = trouble.map(Box::from);
        }
    }

    /// What the last renewal failed with, if it failed with something that can be said.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).as_deref().map(str::to_owned)
    }

    /// It is over. The first cause stays; answers whether this was the first.
    pub(crate) fn lose(&self, cause: LossCause) -> bool {
        self.lose_at(self.clock.now(), cause)
    }

    fn lose_at(&self, now: Moment, cause: LossCause) -> bool {
        let first = self
            .told
            .change(|told| (!matches!(told, GuardState::Lost { .. })).then_some(GuardState::Lost { cause }));
        if first {
            let held = now.since(self.since);
            self.backend.note(&Note::Ended { grant: &self.grant, cause, held });
            self.nudge.notify_one();
        }
        first
    }

    /// Notes progress, unless it comes too late.
    pub(crate) fn report_progress(&self) {
        if matches!(self.state(), GuardState::Lost { .. }) {
            return;
        }
        self.progress.store(self.clock.now().as_nanos(), Ordering::Release);
    }

    pub(crate) fn watch(&self) -> States {
        self.told.listen()
    }

    /// Renews now, for as long as the lock has a ttl, with other details if there are some, and notes the outcome.
    pub(crate) async fn renew(&self, details: Option<&Details>) -> Result<()> {
        use crate::backend::Extension;
        match self.backend.extend(&self.grant, self.grant.ttl, details).await {
            Ok(Extension::Extended { deadline }) => {
                self.renewed(deadline);
                Ok(())
            }
            Ok(Extension::Lost { cause }) => {
                self.lose(cause);
                Err(self.lost_error(cause).during("extend"))
            }
            Err(error) => {
                self.note_trouble(Some(error.message()));
                self.renewal_failed();
                Err(error.during("extend").on(&self.grant.name))
            }
        }
    }

    /// Makes sure that `wanted` is left, renewing if needed.
    pub(crate) async fn ensure(&self, wanted: Duration) -> Result<()> {
        self.check()?;
        if self.remaining().is_none_or(|left| left >= wanted) {
            return Ok(());
        }
        let most = self.grant.ttl.saturating_sub(Deadline::margin(self.grant.ttl));
        if wanted > most {
            return Err(Error::invalid(format!(
                "{wanted:?} is more than a ttl of {:?} can leave; take the lock with a longer ttl",
                self.grant.ttl
            ))
            .on(&self.grant.name));
        }
        tokio::select! {
            biased;
            renewed = self.renew(None) => renewed?,
            // An engine that does not answer must not keep the caller beyond its own loss.
            () = self.clock.sleep_until(self.deadline().0) => {}
            _ = self.watch().lost() => {}
        }
        self.check()?;
        match self.remaining() {
            Some(left) if left < wanted => Err(Error::new(
                ErrorKind::Timeout,
                format!(
                    "only {left:?} remain until the deadline, not {wanted:?}: max_hold, stall_after or a \
                     slow engine allows no more"
                ),
            )
            .on(&self.grant.name)),
            _ => Ok(()),
        }
    }

    /// Has everybody see other details.
    pub(crate) async fn tell(&self, details: &Details) -> Result<()> {
        self.check()?;
        tokio::select! {
            biased;
            told = self.renew(Some(details)) => told,
            cause = self.watch().lost() => Err(self.lost_error(cause)),
        }
    }

    /// The token, after reading the clock.
    pub(crate) fn fence(&self) -> Result<Fence> {
        let exclusive = match self.grant.mode {
            Mode::Exclusive => true,
            Mode::Shared => false,
            Mode::Permit { .. } => {
                return Err(Error::unsupported(
                    "a permit cannot be fenced: several permit holders are not one writer; use an exclusive lock",
                )
                .on(&self.grant.name));
            }
        };
        self.check()?;
        Ok(Fence { token: self.grant.token, exclusive })
    }
}
