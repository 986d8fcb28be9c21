//! Layers: wrappers that change what a backend does, and are backends themselves.
//!
//! They pass the same suite as the backends they wrap. [`Layer`] forwards everything, so that a layer says
//! only what it changes.

mod metrics;
mod namespace;
mod on_tokio;
mod series;
mod timeout;
mod trace;

use std::os::fd::OwnedFd;
use std::time::Duration;

use tollgate_types::{Age, LockName, OwnerId, Token};

pub use self::metrics::Metrics;
pub use self::namespace::Namespace;
pub use self::on_tokio::OnTokio;
pub use self::timeout::Timeout;
pub use self::trace::Trace;
use crate::backend::{
    Attempt, Backend, BoxFuture, BoxStream, Extension, LossCause, Note, Release, Revocation, RevokeMode,
};
use crate::capabilities::Capabilities;
use crate::claim::{Claim, Details};
use crate::error::Result;
use crate::grant::Grant;
use crate::state::{Event, LockState};

/// A backend around another. Every method does what the inner one does, unless it is written anew.
///
/// What each method means is told at [`Backend`], which every layer is.
#[allow(missing_docs)]
pub trait Layer: Send + Sync + 'static {
    /// What it is wrapped around.
    fn inner(&self) -> &dyn Backend;

    fn capabilities(&self) -> &Capabilities {
        self.inner().capabilities()
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        self.inner().try_acquire(claim)
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        self.inner().acquire(claim)
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        self.inner().withdraw(claim)
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        self.inner().extend(grant, ttl, details)
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        self.inner().release(grant)
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        self.inner().lost(grant)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        self.inner().inspect(name)
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        self.inner().list(prefix)
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        self.inner().events(prefix)
    }

    fn tells_events(&self) -> bool {
        self.inner().tells_events()
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        self.inner().revoke(name, token, mode)
    }

    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        self.inner().revocations()
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        self.inner().age()
    }

    fn descriptor(&self, grant: &Grant) -> Result<OwnedFd> {
        self.inner().descriptor(grant)
    }

    fn bequeath(&self, grant: &Grant) -> Result<OwnedFd> {
        self.inner().bequeath(grant)
    }

    fn inherit<'a>(&'a self, grant: &'a Grant, lock: OwnedFd) -> BoxFuture<'a, Result<()>> {
        self.inner().inherit(grant, lock)
    }

    fn note(&self, note: &Note<'_>) {
        self.inner().note(note);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner().close()
    }
}

impl<L: Layer> Backend for L {
    fn capabilities(&self) -> &Capabilities {
        Layer::capabilities(self)
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Layer::try_acquire(self, claim)
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Layer::acquire(self, claim)
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Layer::withdraw(self, claim)
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Layer::extend(self, grant, ttl, details)
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Layer::release(self, grant)
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        Layer::lost(self, grant)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Layer::inspect(self, name)
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        Layer::list(self, prefix)
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        Layer::events(self, prefix)
    }

    fn tells_events(&self) -> bool {
        Layer::tells_events(self)
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Layer::revoke(self, name, token, mode)
    }

    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        Layer::revocations(self)
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Layer::age(self)
    }

    fn descriptor(&self, grant: &Grant) -> Result<OwnedFd> {
        Layer::descriptor(self, grant)
    }

    fn bequeath(&self, grant: &Grant) -> Result<OwnedFd> {
        Layer::bequeath(self, grant)
    }

    fn inherit<'a>(&'a self, grant: &'a Grant, lock: OwnedFd) -> BoxFuture<'a, Result<()>> {
        Layer::inherit(self, grant, lock)
    }

    fn note(&self, note: &Note<'_>) {
        Layer::note(self, note);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Layer::close(self)
    }
}
