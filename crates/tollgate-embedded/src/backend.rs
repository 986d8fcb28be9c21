//! The contract, spoken by the embedded engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;
use tollgate_core::backend::{BoxFuture, BoxStream};
use tollgate_core::capabilities::{Adopt, Capabilities, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::inbox;
use tollgate_core::{
    Attempt, Backend, BootClock, Claim, Clock, Contention, Deadline, Details, Error, ErrorKind, Event,
    Extension, Fault, Grant, Guarantees, Holder, Keeper, LockName, LockState, LossCause, Mode, Moment,
    OwnerId, PartyHandle, Release, Result, Revocation, RevokeMode, Token, Waiter,
};
use tollgate_engine::{Answer, Command, Granted, LockView};

use crate::heart::{Heart, Kept, Taken};

/// Locks among the tasks and threads of this process, on an engine that lives in it.
#[derive(Clone)]
pub struct MemoryBackend {
    heart: Arc<Heart>,
    capabilities: Arc<Capabilities>,
}

impl MemoryBackend {
    /// An engine of its own that nobody else sees.
    pub fn new(clock: Arc<dyn Clock>, keeper: &Keeper) -> Self {
        Self { heart: Heart::start(clock, keeper), capabilities: Arc::new(capabilities()) }
    }

    /// The process's engine called `name`: whoever asks for the same name gets the same locks. It lives as
    /// long as the process, because tokens must not start again.
    pub fn named(name: &str) -> Result<Self> {
        static ENGINES: Mutex<Option<HashMap<String, MemoryBackend>>> = Mutex::new(None);
        let keeper = Keeper::global()?;
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = engines
            .get_or_insert_default()
            .entry(name.to_owned())
            .or_insert_with(|| Self::new(Arc::new(BootClock::new(keeper.clone())), &keeper));
        Ok(engine.clone())
    }

    /// From now on every token is larger than `token`, for locks that move here from another engine.
    pub fn raise_floor(&self, token: Token) {
        self.heart.command(Command::RaiseFloor { token });
    }

    fn acquire_now(&self, claim: &Claim, wait: bool) -> Taken {
        let asked = self.heart.acquire(
            tollgate_engine::Claim {
                name: claim.name.clone(),
                mode: claim.mode,
                owner: claim.owner,
                ttl: claim.ttl,
                // A waiter lives in this process: it cannot vanish without being dropped.
                wait_lease: None,
                lock_delay: claim.lock_delay,
                party: claim.party.as_ref().map(PartyHandle::stamp),
                on_deadlock: claim.on_deadlock,
                details: Arc::new(claim.details.clone()),
            },
            wait,
        );
        if let (Some(party), Some(age)) = (&claim.party, asked.age) {
            party.note(age);
        }
        asked.taken
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        backend: "memory",
        scope: Scope::Process,
        modes: Modes::ALL,
        liveness: Liveness::Lease,
        queue: Queue::Fifo,
        ttl: TtlRange {
            min: Duration::from_millis(10),
            max: Duration::from_secs(365 * 24 * 3600),
            step: Duration::ZERO,
        },
        adopt: Adopt::Any,
        revoke: Revoke::AskOrForce,
        lock_delay: true,
        detect: true,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            // A task that sleeps through its ttl wakes up beside the next holder.
            Fault::HolderPaused => (Basis::Broken, Basis::Kept),
            // Holder and engine read one clock and stop together.
            Fault::RenewalsFail
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::ClockDrift
            | Fault::MachinePaused => (Basis::Kept, Basis::Kept),
            // Holder and engine are one process, and nothing is between them.
            Fault::HolderKilled
            | Fault::ReplyLost
            | Fault::RequestRepeated
            | Fault::EngineRestarted
            | Fault::EngineEmptied
            | Fault::FailedOver
            | Fault::Restored => (Basis::Absent, Basis::Absent),
        }),
    }
}

/// The engine reads the same clock, so its own expiry is known; the margin leaves the holder time to stop.
fn deadline(expires: Moment, ttl: Duration) -> Deadline {
    Deadline::At(expires - Deadline::margin(ttl))
}

fn grant(claim: &Claim, granted: Granted) -> Grant {
    Grant::new(claim, granted.token, deadline(granted.expires, claim.ttl)).with_age(granted.age)
}

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Exhausted => {
            Error::new(ErrorKind::Unavailable, "no token below 2^53 is left; start with a new engine")
                .retryable(false)
        }
        other => Error::new(ErrorKind::Unexpected, format!("the engine answered {other:?}")),
    }
}

impl Backend for MemoryBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            match self.acquire_now(claim, false) {
                Taken::Now(granted) => Ok(Attempt::Granted(grant(claim, granted))),
                Taken::Not(Answer::Busy { ahead, retry_after }) => {
                    Ok(Attempt::Busy(Contention { ahead: Some(ahead), retry_after }))
                }
                Taken::Not(other) => Err(unexpected(other)),
                Taken::Later(_) | Taken::Never(_) => {
                    Err(Error::new(ErrorKind::Unexpected, "the engine queued a claim that must not wait"))
                }
            }
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            match self.acquire_now(claim, true) {
                Taken::Now(granted) => Ok(grant(claim, granted)),
                Taken::Later(granted) => {
                    claim.wait_status.set_queued();
                    match granted.await {
                        Ok(Ok(granted)) => Ok(grant(claim, granted).after_waiting()),
                        Ok(Err(conflict)) => Err(conflict.into()),
                        Err(_) => Err(Error::new(
                            ErrorKind::Lost,
                            "the claim was withdrawn while it waited; acquire it again",
                        )),
                    }
                }
                Taken::Never(conflict) => Err(conflict.into()),
                Taken::Not(other) => Err(unexpected(other)),
            }
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.heart.command(Command::Withdraw { name: claim.name.clone(), owner: claim.owner });
            Ok(())
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            let details = details.map(|details| Arc::new(details.clone()));
            let (name, owner) = (grant.name.clone(), grant.owner);
            match self.heart.command(Command::Extend { name, owner, ttl, details }) {
                Answer::Extended { expires } => Ok(Extension::Extended { deadline: deadline(expires, ttl) }),
                Answer::AskedToLeave => Ok(Extension::Lost { cause: LossCause::Revoked }),
                Answer::NotFound => Ok(Extension::Lost { cause: LossCause::Gone }),
                other => Err(unexpected(other)),
            }
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let (name, owner) = (grant.name.clone(), grant.owner);
            match self.heart.command(Command::Release { name, owner }) {
                Answer::Released { .. } => Ok(Release::Released),
                Answer::NotFound => Ok(Release::AlreadyLost),
                other => Err(unexpected(other)),
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move {
            let seen = self.heart.look(|engine, now| engine.inspect(name).map(|view| Seen::new(&view, now)));
            Ok(seen.map(Seen::state).filter(is_in_use))
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        // Under the engine's lock only references are counted; the copies are made outside, as they are read.
        let seen = self.heart.look(|engine, now| {
            engine.list(prefix).iter().map(|view| Seen::new(view, now)).collect::<Vec<_>>()
        });
        Box::pin(stream::iter(seen.into_iter().map(Seen::state).filter(is_in_use).map(Ok)))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        let start = (self.heart.subscribe(), prefix.to_owned());
        Box::pin(stream::unfold(start, |(mut happenings, prefix)| async move {
            loop {
                match happenings.recv().await {
                    Ok(event) if event.name.as_str().starts_with(&prefix) => {
                        return Some((Ok(event), (happenings, prefix)));
                    }
                    // Somebody else's, or too slow: events may skip.
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        }))
    }

    fn tells_events(&self) -> bool {
        true
    }

    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        Some(inbox::owners_of(self.heart.revoked()))
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let by_force = mode == RevokeMode::Force;
            match self.heart.command(Command::Revoke { name: name.clone(), token, by_force }) {
                Answer::Revoked => Ok(Revocation::Revoked),
                Answer::AskedToLeave => Ok(Revocation::Pending),
                Answer::NotFound => Ok(Revocation::NotHeld),
                other => Err(unexpected(other)),
            }
        })
    }
}

/// A name that only stays closed after a lost holder is held by nobody.
fn is_in_use(state: &LockState) -> bool {
    !(state.holders.is_empty() && state.waiters.is_empty())
}

/// A lock as the engine showed it, with everything that is expensive to copy still shared.
struct Seen {
    name: LockName,
    holders: Vec<(Mode, Token, Duration, Kept)>,
    waiters: Vec<(Mode, Kept)>,
}

impl Seen {
    fn new(view: &LockView<'_, Kept>, now: Moment) -> Self {
        let holders = view.holders.iter();
        Self {
            name: view.name.clone(),
            holders: holders.map(|h| (h.mode, h.token, h.expires.since(now), h.details.clone())).collect(),
            waiters: view.waiters.iter().map(|waiter| (waiter.mode, waiter.details.clone())).collect(),
        }
    }

    fn state(self) -> LockState {
        let holder = |(mode, token, left, details): (_, _, _, Kept)| Holder {
            mode,
            token: Some(token),
            expires_in: Some(left),
            details: Details::clone(&details),
        };
        let waiter = |(mode, details): (_, Kept)| Waiter { mode, details: Details::clone(&details) };
        LockState {
            name: self.name,
            holders: self.holders.into_iter().map(holder).collect(),
            waiters: self.waiters.into_iter().map(waiter).collect(),
        }
    }
}
