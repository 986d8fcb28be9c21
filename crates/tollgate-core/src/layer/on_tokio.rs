//! An error instead of a panic where there is no Tokio runtime.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tollgate_types::{Age, LockName, Token};

use super::Layer;
use crate::backend::{Attempt, Backend, BoxFuture, BoxStream, Extension, Release, Revocation, RevokeMode};
use crate::claim::{Claim, Details};
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::state::{Event, LockState};

/// A backend whose driver needs Tokio: called without a runtime it fails, where the driver would panic.
pub struct OnTokio {
    inner: Arc<dyn Backend>,
}

impl OnTokio {
    /// Checks for a runtime before each request to `inner`.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner }
    }

    /// Fails unless a Tokio runtime polls the caller.
    pub fn check() -> Result<()> {
        match tokio::runtime::Handle::try_current() {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::invalid(
                "no Tokio runtime runs on this thread, and this engine's driver needs one: call it from \
                 #[tokio::main], or use tollgate::blocking",
            )
            .caused_by(error)),
        }
    }
}

fn checked<'a, T: Send + 'a>(request: BoxFuture<'a, Result<T>>) -> BoxFuture<'a, Result<T>> {
    Box::pin(async move {
        OnTokio::check()?;
        request.await
    })
}

impl Layer for OnTokio {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        checked(self.inner.try_acquire(claim))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        checked(self.inner.acquire(claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        checked(self.inner.withdraw(claim))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        checked(self.inner.extend(grant, ttl, details))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        checked(self.inner.release(grant))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        checked(self.inner.inspect(name))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        Box::pin(Checked(Some(self.inner.list(prefix))))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        Box::pin(Checked(Some(self.inner.events(prefix))))
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        checked(self.inner.revoke(name, token, mode))
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        checked(self.inner.age())
    }
}

/// A stream that ends with an error when it is polled without a runtime.
struct Checked<'a, T>(Option<BoxStream<'a, Result<T>>>);

impl<T> Stream for Checked<'_, T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(inner) = &mut self.0 else { return Poll::Ready(None) };
        if let Err(error) = OnTokio::check() {
            self.0 = None;
            return Poll::Ready(Some(Err(error)));
        }
        inner.as_mut().poll_next(context)
    }
}
