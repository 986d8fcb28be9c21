//! A lock in a program's hands.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tollgate_types::Moment;

use crate::agenda::Slot;
use crate::backend::{LossCause, Release};
use crate::capabilities::Adopt;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::grant::{Deadline, Grant};
use crate::hold::{Hold, Limits};
use crate::keep::release_until_answered;
use crate::lease::Lease;

/// A held lock. It belongs to whoever has this value, not to a thread or a task, and is not re-entrant.
///
/// Everything a [`Lease`] tells, a guard tells too. Dropping it releases the lock in the background, with
/// or without a runtime around; [`release`](Self::release) waits and tells how it ended.
#[must_use = "dropping a guard releases the lock"]
pub struct Guard {
    lease: Lease,
    client: Arc<Client>,
    slot: Option<Slot>,
    /// Nothing is left to release.
    settled: bool,
}

impl Guard {
    /// Takes `grant` into this program's hands and has it kept.
    pub(crate) fn new(client: &Arc<Client>, grant: Grant, limits: Limits) -> Self {
        let hold = Arc::new(Hold::new(client.backend.clone(), client.clock.clone(), grant, limits));
        let slot = Some(client.agenda.add(&hold));
        client.guards.add();
        Self { lease: Lease { hold }, client: client.clone(), slot, settled: false }
    }

    /// A view that cannot release the lock.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Gives the lock back and waits for the engine's answer.
    ///
    /// After an error the release goes on in the background, and the ttl ends what cannot be reached.
    pub async fn release(mut self) -> Result<Release> {
        self.stop_keeping();
        let released = self.lease.hold.backend.release(&self.lease.hold.grant).await;
        self.settled = released.is_ok();
        released.map_err(|error| error.during("release").on(self.name()))
    }

    /// Turns the guard into a grant that can be stored, sent, and [adopted](crate::Locks::adopt) elsewhere.
    /// Nobody renews it meanwhile.
    ///
    /// Fails where grants live and die with their process, and where they share a session unless the lock
    /// was taken with `no_renew`; the lock is released then.
    pub fn into_grant(mut self) -> Result<Grant> {
        self.check().map_err(|error| error.during("detach"))?;
        let capabilities = self.lease.hold.backend.capabilities();
        let detachable = match capabilities.adopt {
            Adopt::Any => true,
            Adopt::Standalone => self.lease.hold.grant.standalone,
            Adopt::Never => false,
        };
        if !detachable {
            return Err(Error::unsupported(format!(
                "a grant of the {} backend lives and dies with its {}",
                capabilities.backend,
                if capabilities.adopt == Adopt::Never {
                    "process"
                } else {
                    "session; take the lock with no_renew"
                },
            ))
            .during("detach")
            .on(self.name()));
        }
        let mut grant = self.lease.hold.grant.clone();
        let (deadline, _) = self.lease.hold.deadline();
        grant.deadline = if deadline == Moment::MAX { Deadline::Never } else { Deadline::At(deadline) };
        self.stop_keeping();
        self.settled = true;
        Ok(grant)
    }

    /// Calls `callback` once, on a thread of its own, when the lock is lost; not when it is released.
    pub fn on_lost(&self, callback: impl FnOnce(LossCause) + Send + 'static) {
        let lost = self.lost();
        let keeper = self.client.keeper.clone();
        self.client.keeper.spawn(async move {
            let cause = lost.await;
            if cause != LossCause::Released {
                keeper.spawn_blocking(move || callback(cause));
            }
        });
    }

    /// An open file that a child process can inherit, so that the lock is held as long as either lives.
    /// Only where the lock hangs on a descriptor (`file:`); close-on-exec is set.
    pub fn descriptor(&self) -> Result<OwnedFd> {
        self.lease.hold.backend.descriptor(&self.lease.hold.grant)
    }

    /// From here on nobody renews it and no view calls it held.
    fn stop_keeping(&mut self) {
        self.lease.hold.lose(LossCause::Released);
        if let Some(slot) = self.slot.take() {
            self.client.agenda.remove(slot);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop_keeping();
        if !self.settled {
            let hold = self.lease.hold.clone();
            self.client.in_background(async move { release_until_answered(&hold).await });
        }
        self.client.guards.done();
    }
}

impl Deref for Guard {
    type Target = Lease;
    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lease.fmt(f)
    }
}
