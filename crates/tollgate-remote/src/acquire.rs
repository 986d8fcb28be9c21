//! Asks for locks, and asks again when the connection is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tollgate_core::queued::note_age;
use tollgate_core::wait::Outage;
use tollgate_core::{
    Attempt, Claim, Contention, Deadline, Error, ErrorKind, Grant, Moment, PartyHandle, Result, Token,
};
use tollgate_proto::frame::{Call, ClaimCall};

use crate::backend::RemoteBackend;
use crate::calls::{Open, Told, Waiting};
use crate::details::who;
use crate::error::{self, unanswered};
use crate::link::answered;

/// A connection that lasted longer than this ended an outage.
const OUTAGE: Duration = Duration::from_secs(2);
/// How often an acquire that was not answered at all is repeated.
const REPEATS: u32 = 2;

impl RemoteBackend {
    /// Takes the lock now or not at all.
    pub(crate) async fn try_now(&self, claim: &Claim) -> Result<Attempt> {
        let mut repeats = 0;
        let told = loop {
            let link =
                self.links.link().await.map_err(|error| if repeats > 0 { unanswered() } else { error })?;
            let (open, told) = Open::call();
            link.send(&call(claim, false), Some(open));
            match answered(told).await {
                // The server knows the claim by its owner id: it is the same grant, or none.
                Err(_) if repeats < REPEATS => repeats += 1,
                told => break told?,
            }
        };
        match told {
            Told::Granted { token, sent, lasts, age } => {
                note_age(claim, age);
                Ok(Attempt::Granted(grant(claim, token, sent, lasts)))
            }
            Told::Busy { ahead, retry_after, age } => {
                note_age(claim, age);
                Ok(Attempt::Busy(Contention { ahead: Some(ahead), retry_after }))
            }
            other => Err(refused(claim, other)),
        }
    }

    /// Waits until the lock is granted.
    pub(crate) async fn wait_for(&self, claim: &Claim) -> Result<Grant> {
        let was_queued = Arc::new(AtomicBool::new(false));
        let mut outage = Outage::default();
        let mut repeats = 0;
        loop {
            let asked = Instant::now();
            let told = self.ask_to_wait(claim, &was_queued, repeats > 0).await;
            if asked.elapsed() > OUTAGE {
                outage.is_over();
            }
            let is_waiting = was_queued.load(Ordering::Acquire);
            match told {
                Ok(Told::Granted { token, sent, lasts, age }) => {
                    note_age(claim, age);
                    let grant = grant(claim, token, sent, lasts);
                    return Ok(if is_waiting { grant.after_waiting() } else { grant });
                }
                // A server that stops, or that came back and grants nothing yet.
                Ok(Told::NotGranting { left }) if is_waiting => {
                    tokio::time::sleep(outage.pause(error::not_granting(left))?).await;
                }
                Ok(other) => return Err(refused(claim, other)),
                // A claim that waits keeps its place for a while, and goes on waiting.
                Err(error) if is_waiting => {
                    tokio::time::sleep(outage.pause(error)?).await;
                }
                Err(error) if error.kind() == ErrorKind::Indeterminate && repeats < REPEATS => repeats += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn ask_to_wait(
        &self,
        claim: &Claim,
        was_queued: &Arc<AtomicBool>,
        is_repeated: bool,
    ) -> Result<Told> {
        let link = self.links.link().await.map_err(|error| if is_repeated { unanswered() } else { error })?;
        let (answer, told) = oneshot::channel();
        let waiting = Waiting::new(claim, was_queued.clone());
        link.send(&call(claim, true), Some(Open::Acquire { answer, waiting, is_queued: false }));
        answered(told).await
    }
}

fn call(claim: &Claim, waits: bool) -> Call<'_> {
    Call::Acquire(Box::new(ClaimCall {
        name: claim.name.clone(),
        owner: claim.owner,
        mode: claim.mode,
        waits,
        ttl: claim.ttl,
        lock_delay: claim.lock_delay,
        party: claim.party.as_ref().map(PartyHandle::stamp),
        on_deadlock: claim.on_deadlock,
        who: who(&claim.details),
    }))
}

/// The deadline of a lease that ends `lasts` after the server had read what was sent at `sent`. The
/// margin is never smaller than that of the ttl, so that a repeated answer does not move the
/// deadline.
pub(crate) fn deadline(sent: Moment, lasts: Duration, ttl: std::time::Duration) -> Deadline {
    Deadline::At(sent + lasts.saturating_sub(Deadline::margin(lasts.max(ttl))))
}

fn grant(claim: &Claim, token: Token, sent: Moment, lasts: Duration) -> Grant {
    let age = claim.party.as_ref().and_then(|party| party.stamp().age);
    Grant::new(claim, token, deadline(sent, lasts, claim.ttl)).with_age(age)
}

/// Why a claim is not granted.
fn refused(claim: &Claim, told: Told) -> Error {
    match told {
        Told::Deadlock { conflict, age } => {
            note_age(claim, age);
            conflict.into()
        }
        Told::Lost => {
            Error::new(ErrorKind::Lost, "the claim was withdrawn or lost while it waited; acquire it again")
        }
        other => error::of(other),
    }
}
