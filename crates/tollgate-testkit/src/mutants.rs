//! Backends that break a promise on purpose, each with the case that must catch it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate_core::backend::{BoxFuture, BoxStream};
use tollgate_core::layer::Layer;
use tollgate_core::{
    Attempt, Backend, Capabilities, Claim, Clock, Deadline, Details, Error, ErrorKind, Extension, Grant,
    LockName, LockState, Mode, OnDeadlock, OwnerId, Release, Result, Revocation, RevokeMode, Token,
};

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Every grant carries the same token.
    TokensRepeat,
    /// The counter starts again when a lock was idle.
    TokensRestart,
    /// The deadline lies after the engine's own expiry.
    BelievesTooLong,
    /// The guard has no deadline: a paused holder goes on believing.
    NeverExpiresLocally,
    /// A claim whose outcome is unknown is not withdrawn.
    KeepsWhatIsUnknown,
    /// A release acts on whoever holds the lock.
    ReleasesAnybodys,
    /// A claim that waits is not withdrawn when its future is dropped.
    LeavesWaitersQueued,
    /// A renewal is always reported to have worked.
    SaysExtended,
    /// Renewals run on the executor the lock was taken on.
    RenewsOnTheCallersExecutor,
    /// Those who wait try again now and then, in any order.
    ServesInAnyOrder,
    /// A waiter learns of its grant much later.
    WakesLate,
    /// A mode is missing from what it declares.
    DeclaresLess,
    /// Busy is reported as an error.
    CallsBusyAnError,
    /// Every client has an engine of its own.
    LetsEverybodyIn,
    /// Names that differ in case are one lock.
    FoldsCase,
    /// Readers exclude each other.
    SharesNothing,
    /// Owner ids are shown.
    ShowsOwnerIds,
    /// Nobody is told of a circle.
    WaitsForEver,
    /// A lock goes to the next holder when its holder is only asked to leave.
    HandsOnWhenAsked,
}

/// A flaw, the promise it breaks, and the case that must catch it.
pub struct Mutant {
    /// Which promise.
    pub promise: &'static str,
    /// What is broken.
    pub flaw: Flaw,
    /// Which case catches it.
    pub caught_by: &'static str,
}

/// The case outside the suite's list that compares with the table of expected capabilities.
pub const TABLE: &str = "it_declares_what_the_table_expects";

/// At least one for each promise.
pub const MUTANTS: &[Mutant] = {
    const fn breaks(promise: &'static str, flaw: Flaw, caught_by: &'static str) -> Mutant {
        Mutant { promise, flaw, caught_by }
    }
    &[
        breaks("P1 tokens", Flaw::TokensRepeat, "a_later_acquisition_has_a_larger_token"),
        breaks("P1 tokens", Flaw::TokensRestart, "tokens_go_on_rising_after_a_lock_was_idle"),
        breaks("P2 no false held", Flaw::BelievesTooLong, "an_abandoned_grant_ends_with_its_ttl"),
        breaks("P2 no false held", Flaw::NeverExpiresLocally, "a_guard_never_says_held_past_its_deadline"),
        breaks(
            "P3 unknown is not held",
            Flaw::KeepsWhatIsUnknown,
            "a_lost_reply_is_never_held_and_leaves_nothing_behind",
        ),
        breaks("P4 release is mine only", Flaw::ReleasesAnybodys, "only_the_owner_can_release_or_extend"),
        breaks("P5 cancel-safe", Flaw::LeavesWaitersQueued, "a_wait_can_be_given_up_at_every_poll"),
        breaks("P6 loss is loud", Flaw::SaysExtended, "a_broken_lock_goes_to_the_next"),
        breaks("P6 loss is loud", Flaw::RenewsOnTheCallersExecutor, "a_blocked_executor_loses_nothing"),
        breaks("P7 fair and quiet", Flaw::ServesInAnyOrder, "waiters_are_served_in_order"),
        breaks("P7 fair and quiet", Flaw::WakesLate, "waiting_ends_soon_after_the_release"),
        breaks("P8 honest", Flaw::DeclaresLess, TABLE),
        breaks("P9 errors", Flaw::CallsBusyAnError, "a_busy_lock_is_an_outcome_and_leaves_nothing_behind"),
        breaks("exclusion", Flaw::LetsEverybodyIn, "two_clients_never_hold_together"),
        breaks("names", Flaw::FoldsCase, "names_never_meet"),
        breaks("modes", Flaw::SharesNothing, "readers_share"),
        breaks("deadlocks", Flaw::WaitsForEver, "the_youngest_in_a_circle_is_told_of_it"),
        breaks(
            "breaking in two steps",
            Flaw::HandsOnWhenAsked,
            "a_revoked_grant_is_not_renewed_and_ends_with_its_time",
        ),
        breaks(
            "owner ids are secrets",
            Flaw::ShowsOwnerIds,
            "holders_and_waiters_are_seen_and_owner_ids_are_not",
        ),
    ]
};

/// `inner` with one flaw.
pub struct Broken {
    inner: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    flaw: Flaw,
    capabilities: Capabilities,
    callers: Option<Handle>,
    /// The last grant of each name, for the flaws that mix grants up.
    grants: Mutex<HashMap<LockName, Grant>>,
    tokens: AtomicU64,
}

impl Broken {
    /// Breaks `inner`.
    pub fn new(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>, flaw: Flaw) -> Self {
        let mut capabilities = inner.capabilities().clone();
        if flaw == Flaw::DeclaresLess {
            capabilities.modes.shared = false;
        }
        let (callers, tokens) = (Handle::try_current().ok(), AtomicU64::new(0));
        Self { inner, clock, flaw, capabilities, callers, grants: Mutex::default(), tokens }
    }

    fn twist_claim(&self, claim: &Claim) -> Claim {
        let mut claim = claim.clone();
        match self.flaw {
            Flaw::FoldsCase => claim.name = self.twist_name(&claim.name),
            Flaw::SharesNothing if claim.mode == Mode::Shared => claim.mode = Mode::Exclusive,
            Flaw::WaitsForEver => claim.on_deadlock = OnDeadlock::Timeout,
            Flaw::ShowsOwnerIds => {
                claim.details.meta.insert("owner".into(), claim.owner.to_hex());
            }
            _ => {}
        }
        claim
    }

    fn twist_name(&self, name: &LockName) -> LockName {
        if self.flaw != Flaw::FoldsCase {
            return name.clone();
        }
        LockName::new(name.as_str().to_ascii_lowercase()).expect("lower case is as legal")
    }

    fn twist_grant(&self, mut grant: Grant) -> Grant {
        match self.flaw {
            Flaw::TokensRepeat => grant.token = Token::MIN,
            Flaw::TokensRestart => {
                let next = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
                grant.token = Token::new(next).expect("a case takes few locks");
            }
            Flaw::BelievesTooLong => grant.deadline = Deadline::At(self.clock.now() + grant.ttl * 10),
            Flaw::NeverExpiresLocally => grant.deadline = Deadline::Never,
            _ => {}
        }
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.insert(grant.name.clone(), grant.clone());
        grant
    }

    /// Whatever of it is somebody else's.
    fn mix_up(&self, grant: &Grant) -> Grant {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mixed = match self.flaw {
            Flaw::ReleasesAnybodys => grants.get(&grant.name).unwrap_or(grant).clone(),
            _ => grant.clone(),
        };
        mixed.name = self.twist_name(&mixed.name);
        mixed
    }
}

impl Layer for Broken {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            match self.inner.try_acquire(&self.twist_claim(claim)).await? {
                Attempt::Granted(grant) => Ok(Attempt::Granted(self.twist_grant(grant))),
                Attempt::Busy(_) if self.flaw == Flaw::CallsBusyAnError => {
                    Err(Error::new(ErrorKind::Unavailable, "the lock has a holder"))
                }
                busy => Ok(busy),
            }
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            if self.flaw == Flaw::ServesInAnyOrder {
                return tollgate_core::wait::poll(self, &*self.clock, claim).await;
            }
            let grant = self.inner.acquire(&self.twist_claim(claim)).await?;
            if self.flaw == Flaw::WakesLate {
                self.clock.sleep_until(self.clock.now() + Duration::from_secs(6)).await;
            }
            Ok(self.twist_grant(grant))
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.flaw == Flaw::KeepsWhatIsUnknown || self.flaw == Flaw::LeavesWaitersQueued {
                return Ok(());
            }
            self.inner.withdraw(&self.twist_claim(claim)).await
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            let (inner, mixed) = (self.inner.clone(), self.mix_up(grant));
            let details = details.cloned();
            let work = async move { inner.extend(&mixed, ttl, details.as_ref()).await };
            let extended = match (&self.callers, self.flaw) {
                (Some(callers), Flaw::RenewsOnTheCallersExecutor) => {
                    callers.spawn(work).await.expect("no panic")?
                }
                _ => work.await?,
            };
            match (extended, self.flaw) {
                (Extension::Lost { .. }, Flaw::SaysExtended) => {
                    Ok(Extension::Extended { deadline: Deadline::counted_from(self.clock.now(), ttl) })
                }
                (Extension::Extended { .. }, Flaw::NeverExpiresLocally) => {
                    Ok(Extension::Extended { deadline: Deadline::Never })
                }
                _ => Ok(extended),
            }
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move { self.inner.release(&self.mix_up(grant)).await })
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            if self.flaw == Flaw::HandsOnWhenAsked && mode == RevokeMode::Ask {
                self.inner.revoke(name, token, RevokeMode::Force).await?;
                return Ok(Revocation::Pending);
            }
            self.inner.revoke(name, token, mode).await
        })
    }

    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        // An engine that never tells of a loss, neither by itself nor when asked.
        if self.flaw == Flaw::SaysExtended { None } else { self.inner.revocations() }
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move { self.inner.inspect(&self.twist_name(name)).await })
    }
}
