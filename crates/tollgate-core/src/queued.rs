//! Waiting in an engine's queue: a claim asks for a place, keeps it fresh, and listens for the hand-over.
//!
//! For engines in which whoever leaves hands the lock to the next. The message that tells of it is a hint: whoever asks
//! again is answered the same, so that everything works with every message lost.

use std::sync::Arc;
use std::time::Duration;

use tollgate_types::{Age, Moment, Token};

use crate::backend::Contention;
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::{Deadline, Grant};
use crate::inbox::{Expected, HandOver, Inbox};
use crate::wait::Outage;

/// How an acquire was answered.
#[derive(Debug)]
pub enum Acquired<P> {
    /// It is in.
    Granted {
        /// With this token.
        token: Token,
        /// When the request was sent that the engine let in.
        sent: Moment,
        /// The engine's time, if it told.
        age: Option<Age>,
    },
    /// It waits.
    Queued {
        /// What the engine knows its place by.
        place: P,
        /// The way ahead.
        wait: Wait,
        /// The engine's time, if it told.
        age: Option<Age>,
    },
    /// Somebody else is in, and it did not want to wait.
    Busy {
        /// Who.
        contention: Contention,
        /// The engine's time, if it told.
        age: Option<Age>,
    },
}

/// What a waiter knows of the way ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// How many wait ahead of it.
    pub ahead: u32,
    /// When the lock comes free by itself, where that is known.
    pub free_in: Option<Duration>,
    /// Whoever is in tells nobody when they leave.
    pub foreign: bool,
    /// Until `free_in` is over, nothing happens that the claim is not told of. Of a claim that waits behind others `free_in`
    /// includes how long those live.
    pub told: bool,
}

/// An engine with a queue, as its waiters see it.
pub trait Queue: Sync {
    /// What the engine knows a waiter's place by.
    type Place: Send + Sync;

    /// Asks for the lock, or a place in its queue.
    fn enter(&self, claim: &Claim) -> impl Future<Output = Result<Acquired<Self::Place>>> + Send;

    /// Asks again from a place in the queue, and keeps it. If it is not known what became of the last time, nothing of that
    /// may arrive later.
    fn again(
        &self,
        claim: &Claim,
        place: &Self::Place,
    ) -> impl Future<Output = Result<Acquired<Self::Place>>> + Send;

    /// Where hand-overs arrive.
    fn inbox(&self) -> &Arc<Inbox>;

    /// How long a waiter listens before it asks again. A place is refreshed every third of its ttl at least.
    fn pause(&self, claim: &Claim, wait: Wait) -> Duration;
}

/// Waits until `claim` is let in.
///
/// An engine that is away is an error for a claim that it has not answered yet. One that waits goes on waiting.
pub async fn wait<Q: Queue>(queue: &Q, claim: &Claim) -> Result<Grant> {
    let mut waiting: Option<(Q::Place, Expected)> = None;
    let mut outage = Outage::default();
    loop {
        let mut losses = queue.inbox().losses();
        let asked = match &waiting {
            None => queue.enter(claim).await?,
            Some((place, _)) => match queue.again(claim, place).await {
                Ok(asked) => asked,
                Err(error) => {
                    tokio::time::sleep(outage.pause(error)?).await;
                    continue;
                }
            },
        };
        outage.is_over();
        let (place, wait) = match asked {
            Acquired::Granted { token, sent, age } => {
                note_age(claim, age);
                let waited = waiting.is_some();
                if waiting.is_some_and(|(_, mut expected)| expected.arrives.try_recv().is_err()) {
                    queue.inbox().missed();
                }
                return Ok(Grant { waited, ..granted(claim, token, sent) });
            }
            Acquired::Queued { place, wait, age } => {
                note_age(claim, age);
                claim.wait_status.set_queued();
                (place, wait)
            }
            Acquired::Busy { .. } => {
                return Err(Error::new(
                    ErrorKind::Unexpected,
                    "the backend answered busy to a claim that waits",
                ));
            }
        };
        let expected = match waiting.take() {
            Some((_, expected)) => expected,
            None => queue.inbox().expect(claim.owner),
        };
        let (_, expected) = waiting.insert((place, expected));
        tokio::select! {
            biased;
            Ok(HandOver { token, sent }) = &mut expected.arrives => {
                return Ok(granted(claim, token, sent).after_waiting());
            }
            // The message may have gone with the connection.
            Ok(()) = losses.changed() => {}
            // On this runtime's own timers: the keeper's would wake its thread for every wait.
            () = tokio::time::sleep(queue.pause(claim, wait)) => {}
        }
    }
}

/// The grant of a claim that was sent at `sent`, with the age its party has by now.
pub fn granted(claim: &Claim, token: Token, sent: Moment) -> Grant {
    let age = claim.party.as_ref().and_then(|party| party.stamp().age);
    Grant::new(claim, token, Deadline::counted_from(sent, claim.ttl)).with_age(age)
}

/// Tells the claim's party the engine's time, if this is its first claim.
pub fn note_age(claim: &Claim, age: Option<Age>) {
    if let (Some(party), Some(age)) = (&claim.party, age) {
        party.note(age);
    }
}
