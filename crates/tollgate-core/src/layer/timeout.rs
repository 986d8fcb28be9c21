//! A limit on how long an engine may take to answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tollgate_types::{Age, LockName, Token};

use super::Layer;
use crate::backend::{Attempt, Backend, BoxFuture, BoxStream, Extension, Release, Revocation, RevokeMode};
use crate::capabilities::Revoke;
use crate::claim::{Claim, Details};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::Grant;
use crate::state::LockState;

/// Gives up on requests that are not answered in time.
///
/// What may have been executed is `Indeterminate` then, and what only looks is `Timeout`. Waiting for a lock
/// that the engine has called busy has no limit here, nor has waiting for events: a request says itself how long it waits.
pub struct Timeout {
    inner: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    limit: Duration,
}

impl Timeout {
    /// `inner` must answer within `limit`. Fails if nothing could.
    pub fn new(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>, limit: Duration) -> Result<Self> {
        if limit.is_zero() {
            return Err(Self::too_short());
        }
        Ok(Self { inner, clock, limit })
    }

    /// What is wrong with a limit of zero.
    pub fn too_short() -> Error {
        Error::invalid("a timeout of zero leaves no time for an answer; use at least 1ms")
    }

    /// Gives up on an engine that cannot be connected to within `limit`.
    pub async fn of_connecting<T>(
        clock: &dyn Clock,
        limit: Duration,
        connecting: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            // The engine first: after a stop it and the end of our patience are there together.
            biased;
            connected = connecting => connected,
            () = clock.sleep_until(clock.now() + limit) => Err(Error::new(
                ErrorKind::Timeout,
                format!("connecting took longer than {limit:?}; is the engine running, and is the address \
                         right?"),
            )),
        }
    }

    async fn limited<T>(&self, kind: ErrorKind, request: BoxFuture<'_, Result<T>>) -> Result<T> {
        tokio::select! {
            // The answer first: after a stop it and the end of our patience are there together.
            biased;
            answer = request => answer,
            () = self.clock.sleep_until(self.clock.now() + self.limit) => Err(self.unanswered(kind)),
        }
    }

    fn unanswered(&self, kind: ErrorKind) -> Error {
        let doubt =
            if kind == ErrorKind::Indeterminate { "; the request may have been executed" } else { "" };
        Error::new(kind, format!("the engine did not answer within {:?}{doubt}", self.limit))
    }
}

impl Layer for Timeout {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.limited(ErrorKind::Indeterminate, self.inner.try_acquire(claim)))
    }

    /// Only the engine's first answer has a limit: once it has said that the claim has to wait, the request says how long.
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        let unanswered = async {
            self.clock.sleep_until(self.clock.now() + self.limit).await;
            if claim.wait_status.is_queued() {
                std::future::pending::<()>().await;
            }
        };
        Box::pin(async move {
            tokio::select! {
                biased;
                granted = self.inner.acquire(claim) => granted,
                () = unanswered => Err(self.unanswered(ErrorKind::Indeterminate)),
            }
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.limited(ErrorKind::Indeterminate, self.inner.withdraw(claim)))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(self.limited(ErrorKind::Indeterminate, self.inner.extend(grant, ttl, details)))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(self.limited(ErrorKind::Indeterminate, self.inner.release(grant)))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(self.limited(ErrorKind::Timeout, self.inner.inspect(name)))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let found = Some(self.inner.list(prefix));
        let limited = stream::unfold(found, move |found| async move {
            let mut found = found?;
            let next = tokio::select! {
                biased;
                next = found.next() => next?,
                () = self.clock.sleep_until(self.clock.now() + self.limit) => {
                    return Some((Err(self.unanswered(ErrorKind::Timeout)), None));
                }
            };
            Some((next, Some(found)))
        });
        // May be asked again after its end.
        Box::pin(limited.fuse())
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        // Where a holder can only be asked, it is the holder that is waited for, not the engine.
        if self.inner.capabilities().revoke == Revoke::Cooperative {
            return self.inner.revoke(name, token, mode);
        }
        Box::pin(self.limited(ErrorKind::Indeterminate, self.inner.revoke(name, token, mode)))
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(self.limited(ErrorKind::Timeout, self.inner.age()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let closed = async {
            self.inner.close().await;
            Ok(())
        };
        Box::pin(async move {
            // An engine that does not answer is left to itself.
            let _ = self.limited(ErrorKind::Timeout, Box::pin(closed)).await;
        })
    }
}
