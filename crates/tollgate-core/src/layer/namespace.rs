//! Names under a common prefix, so that several teams can share one engine.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use tollgate_types::{LockName, Token};

use super::Layer;
use crate::backend::{
    Attempt, Backend, BoxFuture, BoxStream, Extension, LossCause, Note, Release, Revocation, RevokeMode,
};
use crate::capabilities::Capabilities;
use crate::claim::{Claim, Details};
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::state::{Event, LockState};

/// Prefixes every name. Those who use the namespace never see it, and nothing outside it; in grants that
/// leave the process names are as the user wrote them.
pub struct Namespace {
    inner: Arc<dyn Backend>,
    /// Ends with a slash.
    prefix: String,
    capabilities: Capabilities,
}

impl Namespace {
    /// Everything `inner` has under `namespace/`. Fails if that cannot begin a name.
    pub fn new(inner: Arc<dyn Backend>, namespace: &str) -> Result<Self> {
        let namespace = parse(namespace)?;
        let prefix = format!("{namespace}/");
        let mut capabilities = inner.capabilities().clone();
        capabilities.longest_name = capabilities.longest_name.saturating_sub(prefix.len());
        if capabilities.longest_name == 0 {
            return Err(Error::invalid(format!("the namespace {namespace:?} leaves no room for names")));
        }
        Ok(Self { inner, prefix, capabilities })
    }

    /// Fails if `namespace` cannot begin a name.
    pub fn check(namespace: &str) -> Result<()> {
        parse(namespace).map(drop)
    }

    fn inside(&self, name: &LockName) -> Result<LockName> {
        LockName::new(format!("{}{name}", self.prefix)).map_err(|error| {
            Error::invalid(format!("with the namespace prefix {:?}, {error}", self.prefix)).on(name)
        })
    }

    /// The name as the user knows it; `None` for what only looks as if it were in here.
    fn outside(&self, name: &LockName) -> Option<LockName> {
        LockName::new(name.as_str().strip_prefix(&self.prefix)?).ok()
    }

    fn claim(&self, claim: &Claim) -> Result<Claim> {
        Ok(Claim { name: self.inside(&claim.name)?, ..claim.clone() })
    }

    /// An error about one of many locks, with the name that is known out here.
    fn named_outside(&self, error: Error) -> Error {
        match error.lock().and_then(|name| self.outside(name)) {
            Some(name) => error.about(&name),
            None => error,
        }
    }

    fn grant(&self, grant: &Grant) -> Result<Grant> {
        Ok(Grant { name: self.inside(&grant.name)?, ..grant.clone() })
    }

    fn pass_on(&self, note: &Note<'_>) -> Result<()> {
        let tell = |note: Note<'_>| self.inner.note(&note);
        match *note {
            Note::WaitOver { .. } => self.inner.note(note),
            Note::Held(grant) => tell(Note::Held(&self.grant(grant)?)),
            Note::RenewalFailed(grant) => tell(Note::RenewalFailed(&self.grant(grant)?)),
            Note::Ended { grant, cause, held } => {
                tell(Note::Ended { grant: &self.grant(grant)?, cause, held })
            }
            Note::Stuck(name) => tell(Note::Stuck(&self.inside(name)?)),
            Note::Unstuck(name) => tell(Note::Unstuck(&self.inside(name)?)),
        }
        Ok(())
    }
}

fn parse(namespace: &str) -> Result<LockName> {
    LockName::new(namespace.trim_end_matches('/'))
        .map_err(|error| Error::invalid(format!("{namespace:?} cannot be a namespace: {error}")))
}

impl Layer for Namespace {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            let attempt = self.inner.try_acquire(&self.claim(claim)?).await;
            Ok(match attempt.map_err(|error| error.about(&claim.name))? {
                Attempt::Granted(grant) => Attempt::Granted(Grant { name: claim.name.clone(), ..grant }),
                busy => busy,
            })
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let grant = self.inner.acquire(&self.claim(claim)?).await;
            let grant = grant.map_err(|error| error.about(&claim.name))?;
            Ok(Grant { name: claim.name.clone(), ..grant })
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.claim(claim) {
                Ok(inside) => self.inner.withdraw(&inside).await.map_err(|error| error.about(&claim.name)),
                // A name that is too long never got to the engine.
                Err(_) => Ok(()),
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
            let extended = self.inner.extend(&self.grant(grant)?, ttl, details).await;
            extended.map_err(|error| error.about(&grant.name))
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let released = self.inner.release(&self.grant(grant)?).await;
            released.map_err(|error| error.about(&grant.name))
        })
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        let grant = self.grant(grant).ok()?;
        // Whether the engine tells is known before anybody waits for it.
        drop(self.inner.lost(&grant)?);
        Some(Box::pin(async move {
            match self.inner.lost(&grant) {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        }))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move {
            let state = self.inner.inspect(&self.inside(name)?).await;
            let state = state.map_err(|error| error.about(name))?;
            Ok(state.map(|state| LockState { name: name.clone(), ..state }))
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let found = self.inner.list(&format!("{}{prefix}", self.prefix));
        let renamed = |state: LockState| self.outside(&state.name).map(|name| LockState { name, ..state });
        let found = found.map_ok(renamed).map_err(|error| self.named_outside(error));
        Box::pin(found.filter_map(async |found| found.transpose()))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        let events = self.inner.events(&format!("{}{prefix}", self.prefix));
        let renamed = |event: Event| self.outside(&event.name).map(|name| Event { name, ..event });
        let events = events.map_ok(renamed).map_err(|error| self.named_outside(error));
        Box::pin(events.filter_map(async |event| event.transpose()))
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let revoked = self.inner.revoke(&self.inside(name)?, token, mode).await;
            revoked.map_err(|error| error.about(name))
        })
    }

    fn descriptor(&self, grant: &Grant) -> Result<OwnedFd> {
        self.inner.descriptor(&self.grant(grant)?).map_err(|error| error.about(&grant.name))
    }

    fn bequeath(&self, grant: &Grant) -> Result<OwnedFd> {
        self.inner.bequeath(&self.grant(grant)?).map_err(|error| error.about(&grant.name))
    }

    fn inherit<'a>(&'a self, grant: &'a Grant, lock: OwnedFd) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let inherited = self.inner.inherit(&self.grant(grant)?, lock).await;
            inherited.map_err(|error| error.about(&grant.name))
        })
    }

    fn note(&self, note: &Note<'_>) {
        // A name that has no room in here never became a claim.
        let _ = self.pass_on(note);
    }
}
