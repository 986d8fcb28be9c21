//! Asking etcd to take or queue a claim, and asking again where no answer came.
//!
//! A leader that dies takes along what was on its way to it. Nobody answers that, and another leader is there a moment
//! later. Copies of an acquire never make two claims: all of them put the same key, which keeps its place, and `copies.rs`
//! says why none is executed after its claim has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{Claim, Error, OwnerId, Result};

use crate::acquire::Value;
use crate::backend::EtcdBackend;
use crate::carried::Carried;
use crate::copies::Ended;
use crate::error::{Executed, Failure, Why};
use crate::keys::Span;
use crate::links::Repeat;
use crate::ops::{absent, delete, how_many, put, replace};
use crate::session::Session;
use crate::sessions::Spot;
use crate::wire::{Compare, RequestOp, TxnRequest, TxnResponse};

/// For how long copies are sent.
const ALL_TOGETHER: Duration = Duration::from_secs(8);
/// For how long those are waited for who ask at the same time.
const FOR_A_TURN: Duration = Duration::from_secs(5);
/// Between two copies, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// What an acquire is made of.
pub(crate) struct Parts {
    /// Puts the claim's key.
    pub(crate) put: RequestOp,
    /// Counts it.
    pub(crate) own: RequestOp,
    /// Must hold, or this copy does nothing.
    pub(crate) wanted: Compare,
    /// Keeps the copies before this one from doing anything: last in whatever this one does.
    pub(crate) silence: Vec<RequestOp>,
}

/// What etcd answered to an acquire, and in which session it was asked.
pub(crate) struct Asked {
    pub(crate) session: Arc<Session>,
    pub(crate) spot: Spot,
    pub(crate) key: Vec<u8>,
    pub(crate) answer: TxnResponse,
}

impl EtcdBackend {
    /// Asks etcd to take or queue `claim`, in a session that is there. What is unknown then is noted for the withdrawal.
    pub(crate) async fn ask(&self, claim: &Claim, request: impl Fn(Parts) -> TxnRequest) -> Result<Asked> {
        let value = Value::new(claim.mode, claim.details.clone());
        let value = serde_json::to_vec(&value).map_err(|error| {
            Error::invalid("the details of this claim cannot be serialised").caused_by(error)
        })?;
        loop {
            let (session, slot) = self.sessions.settle(claim);
            let spot = Spot { lease: session.lease().await?, slot };
            let key = self.layout.claim(&claim.name, spot.lease, slot, claim.mode);
            let copy = |number| {
                let said = |number| self.layout.withdrawn(claim.owner, spot.lease, number);
                request(Parts {
                    put: replace(&key, value.clone(), spot.lease),
                    own: how_many(&Span::one(key.clone())),
                    wanted: absent(&said(number)),
                    silence: (1..number).map(|before| put(&said(before), Vec::new(), spot.lease)).collect(),
                })
            };
            match self.ask_in(&session, spot, claim.owner, copy).await {
                Ok(answer) => return Ok(Asked { session, spot, key, answer }),
                // The session ended before it was asked, and no copy comes after that. Ask again in a new one.
                Err(Failure { executed: Executed::No, why: Why::NoLease, .. }) => session.end(),
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Sends copies until one is answered, it has taken long enough, or the session is over: in another one it would be
    /// another claim, beside one of which nobody knows.
    async fn ask_in(
        &self,
        session: &Session,
        spot: Spot,
        owner: OwnerId,
        copy: impl Fn(u32) -> TxnRequest,
    ) -> Result<TxnResponse, Failure> {
        // Who passes without a turn is one too many, no more: those before it may not be answered, or not be polled.
        let _turn = tokio::time::timeout(FOR_A_TURN, self.turnstile.acquire()).await;
        let end = Instant::now() + ALL_TOGETHER;
        let (mut doubt, mut pause) = (None, PAUSE.0);
        loop {
            let number = self.sessions.asking(owner, spot.lease);
            let failure = match self.send(owner, spot, number, copy(number), end).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if failure.why == Why::NoLease => return Err(failure),
                Err(failure) => failure,
            };
            let again = failure.may_pass()
                && (failure.executed == Executed::Perhaps || doubt.is_some())
                && self.sessions.may_ask_again(owner)
                && !session.is_over()
                && Instant::now() + pause < end;
            // What was refused later says nothing about what came before.
            let failure = doubt.take().unwrap_or(failure);
            if !again {
                return Err(failure);
            }
            doubt = Some(failure);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Sends a copy. It is answered also if whoever waits for it gives up.
    async fn send(
        &self,
        owner: OwnerId,
        spot: Spot,
        number: u32,
        request: TxnRequest,
        end: Instant,
    ) -> Result<TxnResponse, Failure> {
        let (links, sessions) = (self.links.clone(), self.sessions.clone());
        let withdrawn = self.layout.withdrawn(owner, spot.lease, number);
        Carried::new(async move {
            let answer = links.txn(request, Repeat::ByCaller(end)).await;
            let ended = match &answer {
                Ok(_) => Ended::Answered,
                Err(Failure { executed: Executed::No, .. }) => Ended::Refused,
                Err(Failure { executed: Executed::Perhaps, .. }) => Ended::InDoubt,
            };
            if sessions.answered(owner, ended) {
                // This copy does not come late any more.
                let _ = links.delete(delete(&withdrawn)).await;
            }
            answer
        })
        .await
    }
}
