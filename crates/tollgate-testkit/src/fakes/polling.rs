//! A lease without a queue, as on a plain `SET NX PX` server, but with tokens from a counter.

mod server;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tollgate_core::backend::{BoxFuture, BoxStream};
use tollgate_core::capabilities::{Adopt, Capabilities, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{
    Attempt, Backend, Claim, Clock, Contention, Deadline, Details, Event, Extension, Fault, Grant,
    Guarantees, LockName, LockState, LossCause, Release, Result, Revocation, RevokeMode, Token,
};

use super::wire::{self, Wire, over, unexpected};
use server::{Reply, Request};

/// How often those who watch look again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Starts an engine and answers with its address.
pub fn start() -> String {
    wire::start(server::Table::default())
}

/// A client of the engine without a queue.
pub struct PollingBackend {
    wire: Wire,
    clock: Arc<dyn Clock>,
    capabilities: Capabilities,
}

impl PollingBackend {
    /// A client of the engine at `address`, with deadlines read from `clock`.
    pub fn new(address: &str, clock: Arc<dyn Clock>) -> Self {
        Self { wire: Wire::new(address), clock, capabilities: capabilities() }
    }

    /// The locks that answer a request to look.
    async fn look(&self, request: Request) -> Result<Vec<LockState>> {
        match self.wire.call(&request).await? {
            Reply::Locks(locks) => Ok(locks),
            other => Err(unexpected(&other)),
        }
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        backend: "fake-polling",
        scope: Scope::Network,
        modes: Modes::EXCLUSIVE,
        liveness: Liveness::Lease,
        queue: Queue::Polling,
        ttl: TtlRange {
            min: Duration::from_millis(50),
            max: Duration::from_secs(3600),
            step: Duration::ZERO,
        },
        adopt: Adopt::Any,
        revoke: Revoke::AskOrForce,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            Fault::RenewalsFail | Fault::ClockDrift => (Basis::Time, Basis::Kept),
            // The engine counts on a clock that nobody sets.
            Fault::HolderKilled
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::ReplyLost
            | Fault::RequestRepeated => (Basis::Kept, Basis::Kept),
            // It lives in memory.
            Fault::EngineRestarted | Fault::EngineEmptied => (Basis::Broken, Basis::Broken),
            // It has neither replicas nor backups.
            Fault::FailedOver | Fault::Restored => (Basis::Absent, Basis::Absent),
        }),
    }
}

impl Backend for PollingBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let request = Request::Acquire {
                name: claim.name.clone(),
                owner: claim.owner,
                ttl: claim.ttl,
                details: claim.details.clone(),
                sent: self.clock.now(),
            };
            match self.wire.call(&request).await? {
                Reply::Granted { token, sent } => {
                    let deadline = Deadline::counted_from(sent, claim.ttl);
                    Ok(Attempt::Granted(Grant::new(claim, token, deadline)))
                }
                Reply::Busy { retry_after } => {
                    Ok(Attempt::Busy(Contention { ahead: None, retry_after: Some(retry_after) }))
                }
                Reply::Over => Err(over()),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(tollgate_core::wait::poll(self, &*self.clock, claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let request = Request::Withdraw { name: claim.name.clone(), owner: claim.owner };
            match self.wire.call(&request).await? {
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
            let (name, owner, details) = (grant.name.clone(), grant.owner, details.cloned());
            let sent = self.clock.now();
            match self.wire.call(&Request::Extend { name, owner, ttl, details }).await? {
                Reply::Done => Ok(Extension::Extended { deadline: Deadline::counted_from(sent, ttl) }),
                Reply::Revoked => Ok(Extension::Lost { cause: LossCause::Revoked }),
                Reply::NotHeld => Ok(Extension::Lost { cause: LossCause::Gone }),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let request = Request::Release { name: grant.name.clone(), owner: grant.owner };
            match self.wire.call(&request).await? {
                Reply::Done => Ok(Release::Released),
                Reply::NotHeld => Ok(Release::AlreadyLost),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move { Ok(self.look(Request::Inspect { name: name.clone() }).await?.pop()) })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let found = self.look(Request::List { prefix: prefix.to_owned() });
        stream::once(found).map_ok(|locks| stream::iter(locks).map(Ok)).try_flatten().boxed()
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        tollgate_core::events::poll(self, self.clock.clone(), prefix, LOOK_EVERY)
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            match self
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
}
