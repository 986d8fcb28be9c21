//! A lock in a program's hands.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tollgate_types::Moment;

use crate::agenda::Slot;
use crate::backend::{LossCause, Release};
use crate::client::Client;
use crate::count::Counted;
use crate::error::{Error, Result};
use crate::grant::{Deadline, Grant};
use crate::hold::{GuardState, Hold, Limits};
use crate::lease::Lease;
use crate::lock::within_patience;
use crate::settle;

/// A held lock. It belongs to whoever has this value, not to a thread or a task, and is not re-entrant.
///
/// Everything a [`Lease`] tells, a guard tells too. Dropping it releases the lock in the background, with
/// or without a runtime around; [`release`](Self::release) waits and tells how it ended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-guard").await?;
/// let guard = locks.lock("orders/42").acquire().await?;
/// println!("write with token {}", guard.fence()?);
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a guard releases the lock"]
pub struct Guard {
    lease: Lease,
    client: Arc<Client>,
    slot: Option<Slot>,
    /// Nothing is left to release.
    settled: bool,
    _counted: Counted,
}

impl Guard {
    /// Takes `grant` into this program's hands and has it kept.
    pub(crate) fn new(client: &Arc<Client>, grant: Grant, limits: Limits) -> Self {
        let hold = Arc::new(Hold::new(client.backend.clone(), client.clock.clone(), grant, limits));
        let slot = Some(client.agenda.add(&hold));
        let counted = client.guards.one();
        Self { lease: Lease { hold }, client: client.clone(), slot, settled: false, _counted: counted }
    }

    /// A view that cannot release the lock.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Gives the lock back and waits for the engine's answer: `AlreadyLost` if the lock was lost before.
    ///
    /// After an error the release goes on in the background, and the ttl ends what cannot be reached.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-release").await?;
    /// use tollgate::Release;
    ///
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// assert_eq!(guard.release().await?, Release::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<Release> {
        let before = self.stop_keeping();
        if !settle::is_owed(&self.lease.hold, before) {
            self.settled = true;
            return Ok(Release::AlreadyLost);
        }
        let hold = &self.lease.hold;
        let renewed = hold.as_renewed();
        let released = hold.backend.release(renewed.as_deref().unwrap_or(&hold.grant)).await;
        self.settled = released.is_ok();
        let released = released.map_err(|error| error.during("release").on(self.name()))?;
        Ok(match (before, released) {
            (GuardState::Lost { .. }, _) => Release::AlreadyLost,
            // It was ours when it was given back, and nobody else's before its end.
            (_, Release::AlreadyLost) if self.client.clock.now() > hold.lease_end() => Release::Released,
            (_, released) => released,
        })
    }

    /// Gives the lock back after work that needed it to the end: fails with `Lost` if it had not lasted until
    /// now, and somebody else may have been in.
    ///
    /// Does not wait for ever for an engine that does not answer: the release goes on in the background then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-finish").await?;
    /// let guard = locks.lock("report").acquire().await?;
    /// // The work.
    /// guard.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn finish(self) -> Result<()> {
        self.check()?;
        let (lease, clock) = (self.lease(), self.client.clock.clone());
        match within_patience(&*clock, self.release()).await {
            Ok(Release::AlreadyLost) => Err(lease.hold.lost_error(LossCause::Gone)),
            // The work was done under the lock.
            Ok(Release::Released) | Err(_) => Ok(()),
        }
    }

    /// Turns the guard into a grant that can be stored, sent, and [adopted](crate::Locks::adopt) elsewhere.
    /// Nobody renews it meanwhile.
    ///
    /// Fails where grants live and die with their process, and where they share a session unless the lock
    /// was taken with `no_renew`; the lock is released then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-into-grant").await?;
    /// let grant = locks.lock("import").no_renew().acquire().await?.into_grant()?;
    /// println!("{}", serde_json::to_string(&grant).expect("a grant is JSON"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_grant(mut self) -> Result<Grant> {
        let named = |error: Error| error.during("detach").on(self.name());
        self.check().map_err(named)?;
        let capabilities = self.lease.hold.backend.capabilities();
        capabilities.check_adoptable(&self.lease.hold.grant).map_err(named)?;
        let mut grant = self.lease.hold.grant.clone();
        let (deadline, _) = self.lease.hold.deadline();
        grant.deadline = if deadline == Moment::MAX { Deadline::Never } else { Deadline::At(deadline) };
        self.stop_keeping();
        self.settled = true;
        Ok(grant)
    }

    /// Calls `callback` once, on a thread of its own, when the lock is lost; not when it is released.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-on-lost").await?;
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// guard.on_lost(|cause| eprintln!("stop everything: {cause}"));
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_lost(&self, callback: impl FnOnce(LossCause) + Send + 'static) {
        let lost = self.lost();
        let keeper = self.client.keeper.clone();
        self.client.keeper.spawn(async move {
            let cause = lost.await;
            // What the callback captured is dropped with it, which may take long: never on the keeper.
            let call = move || {
                if cause != LossCause::Released {
                    callback(cause);
                }
            };
            if cause == LossCause::Released {
                keeper.spawn_blocking(call);
            } else {
                // Of its own: the keeper's pool is limited, and others may block it.
                std::thread::spawn(call);
            }
        });
    }

    /// The grant as it was given, for a process that shares the lock's [descriptor](Self::descriptor) and is to
    /// [inherit](crate::Locks::inherit) it. It contains the owner id: whoever has it can release the lock.
    pub fn grant(&self) -> &Grant {
        &self.lease.hold.grant
    }

    /// An open file that a child process can inherit, so that the lock is held as long as either lives.
    /// Only where the lock hangs on a descriptor (`file:`); close-on-exec is set.
    pub fn descriptor(&self) -> Result<OwnedFd> {
        self.lease.hold.backend.descriptor(&self.lease.hold.grant)
    }

    /// Lets the lock go into the hands of a process that has, or gets, the open file, and takes it over with
    /// [`Locks::inherit`](crate::Locks::inherit). The lock is held as long as that file is open anywhere, even
    /// if nobody ever takes it over. Limits such as `max_hold` stay behind.
    ///
    /// Fails where the lock does not hang on a descriptor; the lock is released then.
    pub fn bequeath(mut self) -> Result<(Grant, OwnedFd)> {
        let hold = self.lease.hold.clone();
        let named = |error: Error| error.during("bequeath").on(&hold.grant.name);
        self.check().map_err(named)?;
        // Before the engine forgets it, or a renewal would call it lost.
        self.stop_keeping();
        let lock = hold.backend.bequeath(&hold.grant).map_err(named)?;
        self.settled = true;
        Ok((hold.grant.clone(), lock))
    }

    /// From here on nobody renews it and no view calls it held. Answers what it was before.
    fn stop_keeping(&mut self) -> GuardState {
        let before = self.lease.hold.end();
        if let Some(slot) = self.slot.take() {
            self.client.agenda.remove(slot);
        }
        before
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let before = self.stop_keeping();
        if !self.settled && settle::is_owed(&self.lease.hold, before) {
            let hold = self.lease.hold.clone();
            if settle::is_released_at_once(&hold) {
                return;
            }
            self.client.in_background(async move { settle::release(&hold).await });
        }
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
