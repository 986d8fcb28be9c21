//! A claim under way: withdrawn unless it ends in a guard.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tollgate_types::Moment;

use crate::claim::Claim;
use crate::client::Client;
use crate::count::Counted;
use crate::error::ErrorKind;
use crate::settle::{Owed, forgotten_after, until_answered};

/// A claim that the engine may know of. Dropping it, at whatever await the caller gave up, withdraws it.
pub(crate) struct Pending {
    client: Arc<Client>,
    claim: Claim,
    settled: bool,
    _counted: Counted,
}

impl Pending {
    pub(crate) fn new(client: &Arc<Client>, claim: Claim) -> Self {
        Self { client: client.clone(), claim, settled: false, _counted: client.claims.one() }
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The engine knows nothing of the claim, or a guard has taken it over.
    pub(crate) fn settle(mut self) {
        self.settled = true;
    }

    /// Withdraws the claim and waits a little for the engine's answer; the rest goes on in the background. Answers whether the
    /// engine answered.
    pub(crate) async fn withdraw(mut self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(1);
        let until = self.client.clock.now() + PATIENCE;
        let withdrawn = self.start_withdrawal();
        tokio::select! {
            biased;
            answered = withdrawn => answered.unwrap_or(false),
            () = self.client.clock.sleep_until(until) => false,
        }
    }

    /// Withdraws the claim in the background.
    pub(crate) fn withdraw_in_background(mut self) {
        self.start_withdrawal();
    }

    /// As [`is_released_at_once`](crate::settle::is_released_at_once), of a claim that waits.
    fn is_withdrawn_at_once(&self) -> bool {
        let backend = &self.client.backend;
        if !backend.capabilities().detect {
            return false;
        }
        // A driver that panics has not answered.
        let withdrawn =
            AssertUnwindSafe(async { backend.withdraw(&self.claim).await }).catch_unwind().now_or_never();
        matches!(withdrawn, Some(Ok(Ok(()))))
    }

    fn start_withdrawal(&mut self) -> tokio::task::JoinHandle<bool> {
        self.settled = true;
        self.client.in_background(withdraw_until_answered(self.client.clone(), self.claim.clone()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.settled && !self.is_withdrawn_at_once() {
            self.start_withdrawal();
        }
    }
}

/// Repeats a withdrawal until the engine answers, or has forgotten the claim by itself. Answers whether the engine answered.
async fn withdraw_until_answered(client: Arc<Client>, claim: Claim) -> bool {
    // Twice: a claim that waited may have been granted just before it was given up.
    let until = forgotten_after(&*client.backend, &*client.clock, claim.ttl * 2);
    let owed = Owed { backend: &*client.backend, name: &claim.name, ttl: claim.ttl };
    until_answered(&*client.clock, until, owed, || {
        Box::pin(async {
            match client.backend.withdraw(&claim).await {
                Ok(()) => true,
                // What the engine refuses it may refuse for long, and what is left ends with its ttl. A session that other
                // locks keep alive does not end, and neither does what is in it.
                Err(error) => {
                    until < Moment::MAX && matches!(error.kind(), ErrorKind::Denied | ErrorKind::Config)
                }
            }
        })
    })
    .await
}
