//! A `tracing` span for every operation, and an event for what happens to a guard in between.
//!
//! The spans of `list` and `events` cover the asking, not the answers that follow.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tollgate_types::{LockName, Token};
use tracing::field::Empty;
use tracing::{Instrument, Span, debug_span, field, info, warn};

use super::Layer;
use crate::backend::{
    Attempt, Backend, BoxFuture, BoxStream, Extension, LossCause, Note, Release, Revocation, RevokeMode,
};
use crate::claim::{Claim, Details};
use crate::error::Result;
use crate::grant::Grant;
use crate::state::{Event, LockState};

/// Traces what is asked of a backend. Spans have the level `DEBUG`, losses and failed renewals are `WARN`.
pub struct Trace {
    inner: Arc<dyn Backend>,
}

impl Trace {
    /// Traces `inner`.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner }
    }

    fn backend(&self) -> &'static str {
        self.inner.capabilities().backend
    }
}

/// A span of this operation on this lock.
macro_rules! span {
    ($layer:expr, $operation:literal, $name:expr $(, $field:ident)*) => {
        debug_span!(target: "tollgate", $operation, backend = $layer.backend(), lock = %$name, outcome = Empty $(, $field = Empty)*)
    };
}

/// Runs `request` in `span` and records its outcome there. Costs nothing when nobody listens.
fn traced<'a, T: Send + 'a>(
    span: Span,
    request: BoxFuture<'a, Result<T>>,
    outcome: fn(&Span, &T) -> &'static str,
) -> BoxFuture<'a, Result<T>> {
    if span.is_disabled() {
        return request;
    }
    let recorded = span.clone();
    let work = async move {
        let answer = request.await;
        match &answer {
            Ok(value) => recorded.record("outcome", outcome(&recorded, value)),
            Err(error) => recorded.record("outcome", field::display(error)),
        };
        answer
    };
    Box::pin(work.instrument(span))
}

impl Layer for Trace {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        let span = span!(self, "try_acquire", claim.name, token);
        traced(span, self.inner.try_acquire(claim), |span, attempt| match attempt {
            Attempt::Granted(grant) => {
                span.record("token", grant.token.get());
                "granted"
            }
            Attempt::Busy(_) => "busy",
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        let span = span!(self, "acquire", claim.name, token);
        traced(span, self.inner.acquire(claim), |span, grant| {
            span.record("token", grant.token.get());
            "granted"
        })
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        traced(span!(self, "withdraw", claim.name), self.inner.withdraw(claim), |_, ()| "withdrawn")
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        let span = span!(self, "extend", grant.name, token);
        span.record("token", grant.token.get());
        traced(span, self.inner.extend(grant, ttl, details), |_, extension| match extension {
            Extension::Extended { .. } => "extended",
            Extension::Lost { .. } => "lost",
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        let span = span!(self, "release", grant.name, token);
        span.record("token", grant.token.get());
        traced(span, self.inner.release(grant), |_, release| match release {
            Release::Released => "released",
            Release::AlreadyLost => "already lost",
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        traced(span!(self, "inspect", name), self.inner.inspect(name), |_, state| match state {
            Some(_) => "in use",
            None => "free",
        })
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        let span = span!(self, "revoke", name, token);
        span.record("token", token.get());
        traced(span, self.inner.revoke(name, token, mode), |_, revocation| match revocation {
            Revocation::Revoked => "revoked",
            Revocation::Pending => "pending",
            Revocation::NotHeld => "not held",
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        debug_span!(target: "tollgate", "list", backend = self.backend(), prefix)
            .in_scope(|| self.inner.list(prefix))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        debug_span!(target: "tollgate", "events", backend = self.backend(), prefix)
            .in_scope(|| self.inner.events(prefix))
    }

    fn descriptor(&self, grant: &Grant) -> Result<OwnedFd> {
        span!(self, "descriptor", grant.name).in_scope(|| self.inner.descriptor(grant))
    }

    fn bequeath(&self, grant: &Grant) -> Result<OwnedFd> {
        span!(self, "bequeath", grant.name).in_scope(|| self.inner.bequeath(grant))
    }

    fn inherit<'a>(&'a self, grant: &'a Grant, lock: OwnedFd) -> BoxFuture<'a, Result<()>> {
        traced(span!(self, "inherit", grant.name), self.inner.inherit(grant, lock), |_, ()| "inherited")
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let span = debug_span!(target: "tollgate", "close", backend = self.backend());
        Box::pin(self.inner.close().instrument(span))
    }

    fn note(&self, note: &Note<'_>) {
        let backend = self.backend();
        match note {
            Note::Ended { grant, cause, .. } if *cause != LossCause::Released => {
                let (lock, token) = (&grant.name, grant.token.get());
                warn!(target: "tollgate", backend, %lock, token, %cause, "a lock is lost");
            }
            Note::RenewalFailed(grant) => {
                let (lock, token) = (&grant.name, grant.token.get());
                warn!(target: "tollgate", backend, %lock, token, "a renewal failed");
            }
            Note::Stuck(lock) => {
                warn!(
                    target: "tollgate", backend, %lock,
                    "a release or withdrawal is not answered and is repeated in the background"
                );
            }
            Note::Unstuck(lock) => {
                info!(target: "tollgate", backend, %lock, "the repeated release or withdrawal has ended");
            }
            Note::WaitOver { .. } | Note::Held(_) | Note::Ended { .. } => {}
        }
        self.inner.note(note);
    }
}
