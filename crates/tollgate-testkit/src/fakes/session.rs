//! Locks that live as long as a session, which is renewed once for all of them: the shape of etcd and
//! ZooKeeper.

mod liveness;
mod server;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tollgate_core::backend::{BoxFuture, BoxStream};
use tollgate_core::capabilities::{Adopt, Capabilities, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{
    Age, Attempt, Backend, Claim, Clock, Contention, Deadline, Details, Error, Event, Extension, Fault,
    Grant, Guarantees, Keeper, LockName, LockState, LossCause, Release, Result, Revocation, RevokeMode,
    Token,
};

use super::wire::{self, Wire, over, unexpected};
use liveness::{Means, Session};
use server::{Claimed, Reply, Request};

/// How often those who watch look again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Starts an engine and answers with its address.
pub fn start() -> String {
    wire::start(server::Sessions::default())
}

/// A client of the session-shaped engine. It has a session for each ttl that is used.
pub struct SessionBackend {
    means: Means,
    sessions: Mutex<HashMap<Duration, Arc<Session>>>,
    capabilities: Capabilities,
}

impl SessionBackend {
    /// A client of the engine at `address`, with deadlines read from `clock`; `keeper` keeps its sessions.
    pub fn new(address: &str, clock: Arc<dyn Clock>, keeper: Keeper) -> Self {
        let means = Means { wire: Wire::new(address), clock, keeper };
        Self { means, sessions: Mutex::default(), capabilities: capabilities() }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<Duration, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that `claim` is to live in: its own, or the one all claims with its ttl share.
    fn session_for(&self, claim: &Claim) -> Arc<Session> {
        if claim.standalone {
            return Session::open(&self.means, claim.ttl, true);
        }
        let mut sessions = self.sessions();
        match sessions.get(&claim.ttl) {
            Some(session) if !session.is_over() => session.clone(),
            _ => {
                let session = Session::open(&self.means, claim.ttl, false);
                sessions.insert(claim.ttl, session.clone());
                session
            }
        }
    }

    /// The shared session that `grant` lives in; none for a grant with a session of its own, and for one
    /// whose session has ended.
    fn session_of(&self, grant: &Grant) -> Option<Arc<Session>> {
        let number = session_number(grant).ok()?;
        self.sessions().get(&grant.ttl).filter(|session| session.is(number)).cloned()
    }

    /// Takes the lock, or waits for it.
    async fn take(&self, claim: &Claim, wait: bool) -> Result<Attempt> {
        loop {
            let session = self.session_for(claim);
            let id = session.id().await?;
            let request = Request::Acquire { session: id, wait, claim: claimed(claim) };
            let asked = async {
                if wait {
                    self.means.wire.call_and_wait(&request).await
                } else {
                    self.means.wire.call(&request).await
                }
            };
            let reply = tokio::select! {
                reply = asked => reply?,
                () = session.ended() => return Err(over()),
            };
            match reply {
                // It may have been long on its way: a session that ended meanwhile took the lock with it.
                Reply::Granted { token, age, waited } if session.refresh(id).await? => {
                    let grant = Grant::new(claim, token, session.deadline()).with_age(age);
                    let grant = Grant { waited, ..grant.with_handle(id.to_string()) };
                    return Ok(Attempt::Granted(grant));
                }
                Reply::Granted { .. } | Reply::Over => return Err(over()),
                Reply::Busy { ahead } => {
                    return Ok(Attempt::Busy(Contention { ahead: Some(ahead), retry_after: None }));
                }
                // The engine did nothing: the session ended before it was asked. Ask again in a new one.
                Reply::NoSession => session.end(),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The locks that answer a request to look.
    async fn look(&self, request: Request) -> Result<Vec<LockState>> {
        match self.means.wire.call(&request).await? {
            Reply::Locks(locks) => Ok(locks),
            other => Err(unexpected(&other)),
        }
    }
}

fn claimed(claim: &Claim) -> Claimed {
    Claimed {
        name: claim.name.clone(),
        mode: claim.mode,
        owner: claim.owner,
        party: claim.party.as_ref().map(tollgate_core::PartyHandle::stamp),
        details: claim.details.clone(),
    }
}

/// The number of the session that a grant lives in.
fn session_number(grant: &Grant) -> Result<u64> {
    let handle = grant.handle.as_deref().unwrap_or_default();
    handle.parse().map_err(|_| Error::invalid("this grant names no session; it came from another engine"))
}

fn capabilities() -> Capabilities {
    Capabilities {
        backend: "fake-session",
        scope: Scope::Network,
        modes: Modes::ALL,
        liveness: Liveness::Session,
        queue: Queue::Fifo,
        ttl: TtlRange {
            min: Duration::from_millis(300),
            max: Duration::from_secs(3600),
            step: Duration::ZERO,
        },
        adopt: Adopt::Standalone,
        revoke: Revoke::AskOrForce,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            Fault::RenewalsFail | Fault::ClockDrift | Fault::ReplyLost | Fault::FailedOver => {
                (Basis::Time, Basis::Kept)
            }
            Fault::HolderKilled | Fault::ClockForward | Fault::ClockBack | Fault::RequestRepeated => {
                (Basis::Kept, Basis::Kept)
            }
            // It lives in memory.
            Fault::EngineRestarted | Fault::EngineEmptied | Fault::Restored => (Basis::Broken, Basis::Broken),
        }),
    }
}

impl Backend for SessionBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.take(claim, false))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            // The request that waits is answered only when the wait is over.
            if let Attempt::Granted(grant) = self.take(claim, false).await? {
                return Ok(grant);
            }
            claim.wait_status.set_queued();
            match self.take(claim, true).await? {
                Attempt::Granted(grant) => Ok(grant),
                busy => Err(unexpected(&busy)),
            }
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let request = Request::Withdraw { name: claim.name.clone(), owner: claim.owner };
            match self.means.wire.call(&request).await? {
                Reply::Done => Ok(()),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            if ttl != grant.ttl {
                return Err(Error::unsupported(
                    "the ttl belongs to the session and cannot be changed; take the lock again with \
                     another ttl",
                ));
            }
            let (session, standalone) = (session_number(grant)?, grant.standalone);
            let shared = self.session_of(grant);
            let renew = standalone || shared.as_ref().is_some_and(|session| session.is_stale());
            let (name, owner, details) = (grant.name.clone(), grant.owner, details.cloned());
            let sent = self.means.clock.now();
            match self.means.wire.call(&Request::Check { session, name, owner, details, renew }).await? {
                Reply::Done => {
                    let deadline = match shared {
                        None if standalone => Deadline::counted_from(sent, ttl),
                        // Whoever renews a stranger's session keeps all the stranger's locks.
                        None => {
                            return Err(Error::unsupported("this lock belongs to another client's session"));
                        }
                        Some(session) => {
                            if renew {
                                session.was_answered(sent);
                            }
                            session.deadline()
                        }
                    };
                    Ok(Extension::Extended { deadline })
                }
                Reply::Revoked => Ok(Extension::Lost { cause: LossCause::Revoked }),
                Reply::NotHeld => Ok(Extension::Lost { cause: LossCause::Gone }),
                Reply::NoSession => {
                    if let Some(session) = shared {
                        session.end();
                    }
                    Ok(Extension::Lost { cause: LossCause::SessionEnded })
                }
                other => Err(unexpected(&other)),
            }
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let request = Request::Release { name: grant.name.clone(), owner: grant.owner };
            match self.means.wire.call(&request).await? {
                Reply::Done => Ok(Release::Released),
                Reply::NotHeld => Ok(Release::AlreadyLost),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        let ended = self.session_of(grant)?.ended();
        Some(Box::pin(async move {
            ended.await;
            LossCause::SessionEnded
        }))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move { Ok(self.look(Request::Inspect { name: name.clone() }).await?.pop()) })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let found = self.look(Request::List { prefix: prefix.to_owned() });
        stream::once(found).map_ok(|locks| stream::iter(locks).map(Ok)).try_flatten().boxed()
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        tollgate_core::events::poll(self, self.means.clock.clone(), prefix, LOOK_EVERY)
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            match self
                .means
                .wire
                .call(&Request::Revoke { name: name.clone(), token, by_force: mode == RevokeMode::Force })
                .await?
            {
                Reply::Done => Ok(Revocation::Revoked),
                Reply::Revoked => Ok(Revocation::Pending),
                Reply::NotHeld => Ok(Revocation::NotHeld),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(async move {
            match self.means.wire.call(&Request::Time).await? {
                Reply::Time(age) => Ok(age),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        // What is still held ends with the ttl of its session, which nobody renews from here on.
        self.sessions().clear();
        Box::pin(std::future::ready(()))
    }
}
