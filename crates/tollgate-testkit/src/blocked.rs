//! A backend whose every request is waited for on a thread of its own, as `tollgate::blocking` does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tollgate_core::backend::BoxFuture;
use tollgate_core::layer::Layer;
use tollgate_core::{
    Attempt, Backend, Claim, Details, Error, ErrorKind, Extension, Grant, Keeper, LockName, LockState,
    OwnerId, Release, Result, Revocation, RevokeMode, Token,
};

/// Drives `inner` by [`Keeper::block_on`] alone.
///
/// A thread cannot be cancelled, but a future can: when a caller goes away, the thread drops what it waits
/// for, and a withdrawal is sent after that, as the contract asks.
pub struct Blocked {
    inner: Arc<dyn Backend>,
    keeper: Keeper,
    /// Acquisitions whose threads still run.
    under_way: Arc<Mutex<HashMap<OwnerId, watch::Receiver<()>>>>,
}

impl Blocked {
    /// Drives `inner` from threads.
    pub fn new(inner: Arc<dyn Backend>, keeper: Keeper) -> Self {
        Self { inner, keeper, under_way: Arc::default() }
    }

    /// Waits for what `request` asks of the backend on a thread, until the caller goes away.
    async fn on_thread<T: Send + 'static>(
        &self,
        owner: Option<OwnerId>,
        request: impl FnOnce(Arc<dyn Backend>) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (inner, keeper, under_way) = (self.inner.clone(), self.keeper.clone(), self.under_way.clone());
        let (mut answer, answered) = oneshot::channel();
        let (done, running) = watch::channel(());
        if let Some(owner) = owner {
            under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(owner, running);
        }
        std::thread::spawn(move || {
            let outcome = keeper.block_on(async {
                tokio::select! {
                    outcome = request(inner) => Some(outcome),
                    () = answer.closed() => None,
                }
            });
            if let Some(owner) = owner {
                under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner);
            }
            drop(done);
            if let Some(outcome) = outcome {
                // A caller who has gone meanwhile withdraws.
                let _ = answer.send(outcome);
            }
        });
        answered.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unexpected, "the thread panicked")))
    }

    /// Waits until no thread works on an acquisition of `owner`.
    async fn until_dropped(&self, owner: OwnerId) {
        let running = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).get(&owner).cloned();
        if let Some(mut running) = running {
            // The error is what is waited for: the thread has let go of its end.
            let _ = running.changed().await;
        }
    }
}

impl Layer for Blocked {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        let (owner, claim) = (claim.owner, claim.clone());
        Box::pin(
            self.on_thread(Some(owner), |inner| Box::pin(async move { inner.try_acquire(&claim).await })),
        )
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        let (owner, claim) = (claim.owner, claim.clone());
        Box::pin(self.on_thread(Some(owner), |inner| Box::pin(async move { inner.acquire(&claim).await })))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.until_dropped(claim.owner).await;
            let claim = claim.clone();
            self.on_thread(None, |inner| Box::pin(async move { inner.withdraw(&claim).await })).await
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        let (grant, details) = (grant.clone(), details.cloned());
        Box::pin(self.on_thread(None, move |inner| {
            Box::pin(async move { inner.extend(&grant, ttl, details.as_ref()).await })
        }))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        let grant = grant.clone();
        Box::pin(self.on_thread(None, |inner| Box::pin(async move { inner.release(&grant).await })))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        let name = name.clone();
        Box::pin(self.on_thread(None, |inner| Box::pin(async move { inner.inspect(&name).await })))
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        let name = name.clone();
        Box::pin(
            self.on_thread(None, move |inner| {
                Box::pin(async move { inner.revoke(&name, token, mode).await })
            }),
        )
    }
}
