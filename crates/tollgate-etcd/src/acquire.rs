//! Taking a lock: a key in the queue, in one step with a look at those before it, and the wait for its turn.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{
    Age, Attempt, Claim, Contention, Deadline, Details, Error, ErrorKind, Grant, LockName, Mode, OwnerId,
    Result, Token,
};

use crate::backend::EtcdBackend;
use crate::carried::Carried;
use crate::error::{Executed, Failure, Why, over};
use crate::floor::Floor;
use crate::hub::{Signal, Since, Watch, What};
use crate::keys::{Place, Span};
use crate::links::Repeat;
use crate::ops::{absent, created_at, delete, nothing_in, put, queue, queued, range, read, revision};
use crate::queue::{Turn, Verdict, judge};
use crate::session::Session;
use crate::wire::request_op::Request as Op;
use crate::wire::{PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse};

/// How much of the queue is read at first: an exclusive claim needs itself and the one before it.
const TWO: i64 = 2;
/// The others look further back.
const PAGE: i64 = 64;
/// How often a waiter looks again though it was told of nothing.
const AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// Before a watch that broke is made again.
const PAUSE: Duration = Duration::from_millis(20);

/// A claim's value, for people who look. Its mode is in its key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Value {
    /// The version of this.
    pub(crate) tollgate: u32,
    pub(crate) mode: Mode,
    #[serde(flatten)]
    pub(crate) details: Details,
}

/// A claim that has its place in the queue.
struct Placed {
    session: Arc<Session>,
    lease: i64,
    key: Vec<u8>,
    revision: i64,
    token: Token,
    view: View,
}

/// Whether what is waited for has happened before the watch was in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Still {
    /// It has not, and nothing was written at all since the watch was made: etcd has it in place.
    ThereAndNothingChanged,
    /// It has not.
    There,
    /// It may have.
    LookAgain,
}

/// What was seen of the queue before a claim.
struct View {
    /// The nearest first.
    ahead: Vec<Place>,
    /// Whether there are no more.
    all: bool,
    /// The revision of the last key that was seen.
    last: i64,
    /// The revision of the look.
    known: i64,
}

impl View {
    /// What a look at `span` says of those before the claim that was created at `own`.
    fn of(span: &Span, own: i64, found: &RangeResponse, known: i64) -> Self {
        let before = found.kvs.iter().filter(|found| found.create_revision < own);
        let ahead = before.filter_map(|found| Place::read(span, found)).collect();
        let last = found.kvs.last().map_or(0, |found| found.create_revision);
        Self { ahead, all: !found.more, last, known }
    }
}

impl EtcdBackend {
    /// Takes the lock if nobody is in the way.
    pub(crate) async fn attempt(&self, claim: &Claim) -> Result<Attempt> {
        if let Some(grant) = self.again(claim).await? {
            return Ok(Attempt::Granted(grant));
        }
        if claim.mode == Mode::Exclusive
            && let Some(attempt) = self.take_if_free(claim).await?
        {
            return Ok(attempt);
        }
        let mut placed = self.place(claim).await?;
        match self.verdict(claim, &mut placed).await? {
            Verdict::In => Ok(Attempt::Granted(self.granted(claim, &placed))),
            _ => {
                let ahead = placed.view.all.then_some(placed.view.ahead.len());
                self.links.delete(delete(&placed.key)).await?;
                self.sessions.forget(claim.owner);
                Ok(Attempt::Busy(Contention { ahead, retry_after: None }))
            }
        }
    }

    /// Waits until the lock is ours.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant> {
        if let Some(grant) = self.again(claim).await? {
            return Ok(grant);
        }
        let mut placed = self.place(claim).await?;
        let session = placed.session.clone();
        let mut waited = false;
        let mut watched: Option<(Turn, Watch)> = None;
        loop {
            let turn = match self.verdict(claim, &mut placed).await? {
                Verdict::After(turn) => turn,
                _ => break,
            };
            waited = true;
            let known = placed.view.known;
            let mut watch = match watched.take() {
                Some((same, watch)) if same == turn => watch,
                _ => {
                    let mut watch = self.hub.watch(self.what(&claim.name, &turn));
                    let signal = tokio::select! {
                        signal = watch.signal() => signal,
                        () = session.ended() => return Err(over()),
                    };
                    match signal {
                        // What happened between our look and then, the watch does not tell.
                        Signal::Created(since) if since.revision > known => {
                            let still = patiently(&session, || self.is_still_there(&turn, since)).await?;
                            if still != Still::ThereAndNothingChanged {
                                watch.double();
                            }
                            if still == Still::LookAgain {
                                placed.view = patiently(&session, || self.look(claim, &placed)).await?;
                                watched = Some((turn, watch));
                                continue;
                            }
                        }
                        Signal::Created(_) => watch.double(),
                        Signal::Events(_) => {
                            placed.view = patiently(&session, || self.look(claim, &placed)).await?;
                            continue;
                        }
                        Signal::Broken => {
                            tokio::time::sleep(PAUSE).await;
                            placed.view = patiently(&session, || self.look(claim, &placed)).await?;
                            continue;
                        }
                    }
                    watch
                }
            };
            tokio::select! {
                signal = watch.event() => if matches!(signal, Signal::Broken) {
                    tokio::time::sleep(PAUSE).await;
                } else {
                    watched = Some((turn, watch));
                },
                () = session.ended() => return Err(over()),
                // Some versions lose events when they compact.
                () = tokio::time::sleep(AT_LEAST_EVERY) => watched = Some((turn, watch)),
            }
            // Also whether our own key, and with it the lease, is still there.
            placed.view = patiently(&session, || self.look(claim, &placed)).await?;
        }
        if waited && matches!(claim.mode, Mode::Permit { .. }) {
            self.tell_those_behind(claim, &placed).await?;
        }
        let grant = self.granted(claim, &placed);
        Ok(if waited { grant.after_waiting() } else { grant })
    }

    /// The grant that a claim with a lease of its own has already.
    async fn again(&self, claim: &Claim) -> Result<Option<Grant>> {
        let Some((lease, end)) = self.sessions.own_lease(claim.owner) else { return Ok(None) };
        let key = self.layout.claim(&claim.name, lease, claim.mode, claim.owner);
        let Some(revision) = self.created(&key).await? else { return Err(over()) };
        let token = self.floor(&claim.name).await?.token(revision)?;
        let grant = Grant::new(claim, token, Deadline::At(end));
        Ok(Some(grant.with_handle(Handle { lease, revision }.to_string())))
    }

    /// Takes a lock on which nobody has a claim. `None` if others' claims on longer names, or our own, are there: the
    /// queue has to be read then.
    async fn take_if_free(&self, claim: &Claim) -> Result<Option<Attempt>> {
        let span = self.layout.claims_on(&claim.name);
        let (session, lease, key, answer) = self
            .ask(claim, |key, value, lease| TxnRequest {
                compare: vec![nothing_in(&span), absent(&self.layout.withdrawn(claim.owner))],
                success: vec![put(key, value, lease), self.read_floor(&claim.name)],
                failure: vec![queue(&span, i64::MAX, PAGE)],
            })
            .await?;
        let known = revision(&answer)?;
        if answer.succeeded {
            let token = self.token_of(claim, range(&answer, 1)?, known)?;
            let view = View { ahead: Vec::new(), all: true, last: known, known };
            let placed = Placed { session, lease, key, revision: known, token, view };
            return Ok(Some(Attempt::Granted(self.granted(claim, &placed))));
        }
        let found = range(&answer, 0)?;
        let View { ahead, all, .. } = View::of(&span, i64::MAX, found, known);
        if ahead.is_empty() || ahead.iter().any(|place| place.key == key) {
            return Ok(None);
        }
        note_age(claim, known);
        self.sessions.forget(claim.owner);
        Ok(Some(Attempt::Busy(Contention { ahead: all.then_some(ahead.len()), retry_after: None })))
    }

    /// Puts the claim into the queue and looks at those before it, in one step. The same claim again keeps its place.
    async fn place(&self, claim: &Claim) -> Result<Placed> {
        let span = self.layout.claims_on(&claim.name);
        let (session, lease, key, answer) = self
            .ask(claim, |key, value, lease| TxnRequest {
                compare: vec![absent(&self.layout.withdrawn(claim.owner))],
                success: vec![
                    put(key, value, lease),
                    queue(&span, i64::MAX, page(claim.mode)),
                    self.read_floor(&claim.name),
                ],
                failure: Vec::new(),
            })
            .await?;
        if !answer.succeeded {
            return Err(Error::new(ErrorKind::Lost, "this claim was withdrawn; make another").retryable(true));
        }
        let (known, found) = (revision(&answer)?, range(&answer, 1)?);
        let floor = range(&answer, 2)?;
        if found.kvs.first().is_some_and(|first| first.key == key) {
            let own = found.kvs[0].create_revision;
            let (view, token) = (View::of(&span, own, found, known), self.token_of(claim, floor, own)?);
            return Ok(Placed { session, lease, key, revision: own, token, view });
        }
        // It was there before, and others have come since.
        let own = self.created(&key).await?.ok_or_else(over)?;
        let (token, view) =
            (self.token_of(claim, floor, own)?, View { ahead: Vec::new(), all: false, last: own, known });
        Ok(Placed { session, lease, key, revision: own, token, view })
    }

    /// The revision that created a key that is there.
    async fn created(&self, key: &[u8]) -> Result<Option<i64>> {
        let request = RangeRequest { key: key.to_vec().into(), keys_only: true, ..RangeRequest::default() };
        Ok(self.links.range(request).await?.kvs.first().map(|found| found.create_revision))
    }

    /// Asks etcd to take or queue `claim`, in a session that is there. What is unknown then is noted for the withdrawal.
    async fn ask(
        &self,
        claim: &Claim,
        request: impl Fn(&[u8], Vec<u8>, i64) -> TxnRequest,
    ) -> Result<(Arc<Session>, i64, Vec<u8>, TxnResponse)> {
        let value = Value { tollgate: 1, mode: claim.mode, details: claim.details.clone() };
        let value = serde_json::to_vec(&value)
            .map_err(|error| Error::invalid("these details cannot be written").caused_by(error))?;
        loop {
            let session = self.sessions.settle(claim);
            let lease = session.lease().await?;
            let key = self.layout.claim(&claim.name, lease, claim.mode, claim.owner);
            match self.send(claim.owner, lease, request(&key, value.clone(), lease)).await {
                Ok(answer) => return Ok((session, lease, key, answer)),
                // The session ended before it was asked. Ask again in a new one.
                Err(Failure { executed: Executed::No, why: Why::NoLease, .. }) => session.end(),
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Sends an acquire. It is answered also if whoever waits for it gives up.
    async fn send(&self, owner: OwnerId, lease: i64, request: TxnRequest) -> Result<TxnResponse, Failure> {
        self.sessions.asking(owner, lease);
        let (links, sessions, withdrawn) =
            (self.links.clone(), self.sessions.clone(), self.layout.withdrawn(owner));
        Carried::new(async move {
            let answer = links.txn(request, Repeat::No).await;
            let known = !matches!(&answer, Err(failure) if failure.executed == Executed::Perhaps);
            if sessions.answered(owner, known) {
                // Nothing comes late any more.
                let _ = links.delete(delete(&withdrawn)).await;
            }
            answer
        })
        .await
    }

    /// Judges the claim, and reads as much more of the queue as that takes.
    async fn verdict(&self, claim: &Claim, placed: &mut Placed) -> Result<Verdict> {
        let span = self.layout.claims_on(&claim.name);
        loop {
            let verdict = judge(claim.mode, &placed.view.ahead, placed.view.all);
            if verdict != Verdict::More {
                return Ok(verdict);
            }
            let request = queued(&span, placed.view.last - 1, PAGE * 4);
            let answer = self.links.range(request).await?;
            let next = View::of(&span, placed.revision, &answer, placed.view.known);
            // None is ever added before us: what was seen is at most too much.
            placed.view.ahead.extend(next.ahead);
            (placed.view.all, placed.view.last) = (next.all, next.last);
        }
    }

    /// Looks at the queue again, from our own key on. Fails if that is gone.
    async fn look(&self, claim: &Claim, placed: &Placed) -> Result<View> {
        let span = self.layout.claims_on(&claim.name);
        let answer = self.links.range(queued(&span, placed.revision, page(claim.mode))).await?;
        let known = answer.header.map_or(0, |header| header.revision);
        let own = answer
            .kvs
            .first()
            .is_some_and(|found| found.key == placed.key && found.create_revision == placed.revision);
        if !own {
            return Err(over());
        }
        Ok(View::of(&span, placed.revision, &answer, known))
    }

    /// What to watch while waiting for `turn`.
    fn what(&self, name: &LockName, turn: &Turn) -> What {
        let (span, deletions) = match turn {
            Turn::Left(key) => (Span::one(key.clone()), true),
            Turn::Moved(key) => (Span::one(key.clone()), false),
            Turn::AnyLeft => (self.layout.claims_on(name), true),
        };
        What { span, deletions, from: 0 }
    }

    /// Whether the one claim that is waited for is still there; only a look at the queue tells what else may have moved.
    ///
    /// The member that watches need not ask the others: what it has not applied yet, it will tell.
    async fn is_still_there(&self, turn: &Turn, since: Since) -> Result<Still> {
        let Turn::Left(key) = turn else { return Ok(Still::LookAgain) };
        let request = RangeRequest {
            key: key.clone().into(),
            count_only: true,
            serializable: true,
            ..RangeRequest::default()
        };
        let answer = self.links.range(request.clone()).await?;
        let header = answer.header.unwrap_or_default();
        if header.member_id == since.member && header.revision >= since.revision {
            return Ok(match (answer.count > 0, header.revision == since.revision) {
                (true, true) => Still::ThereAndNothingChanged,
                (true, false) => Still::There,
                (false, _) => Still::LookAgain,
            });
        }
        let answer = self.links.range(RangeRequest { serializable: false, ..request }).await?;
        Ok(if answer.count > 0 { Still::There } else { Still::LookAgain })
    }

    /// A permit that got in writes its key again: the next one waits for that.
    async fn tell_those_behind(&self, claim: &Claim, placed: &Placed) -> Result<()> {
        let value = Value { tollgate: 1, mode: claim.mode, details: claim.details.clone() };
        if self.rewrite(&placed.key, placed.revision, &value).await? { Ok(()) } else { Err(over()) }
    }

    /// Replaces the value of a claim that is still there.
    pub(crate) async fn rewrite(&self, key: &[u8], revision: i64, value: &Value) -> Result<bool> {
        let value = serde_json::to_vec(value)
            .map_err(|error| Error::invalid("these details cannot be written").caused_by(error))?;
        let put = PutRequest {
            key: key.to_vec().into(),
            value: value.into(),
            ignore_lease: true,
            ..PutRequest::default()
        };
        let request = TxnRequest {
            compare: vec![created_at(key, revision)],
            success: vec![RequestOp { request: Some(Op::RequestPut(put)) }],
            failure: Vec::new(),
        };
        Ok(self.links.txn(request, Repeat::Yes).await?.succeeded)
    }

    fn granted(&self, claim: &Claim, placed: &Placed) -> Grant {
        let deadline = placed.session.deadline();
        if claim.standalone
            && let Deadline::At(end) = deadline
        {
            self.sessions.abandon(claim.owner, end);
        }
        let handle = Handle { lease: placed.lease, revision: placed.revision };
        let age = claim.party.as_ref().and_then(|party| party.stamp().age);
        Grant::new(claim, placed.token, deadline).with_age(age).with_handle(handle.to_string())
    }

    /// The token of a claim, by the floor that was read in the same step.
    fn token_of(&self, claim: &Claim, floor: &RangeResponse, revision: i64) -> Result<Token> {
        note_age(claim, revision);
        Floor::read(floor.kvs.first())?.token(revision)
    }

    fn read_floor(&self, name: &LockName) -> RequestOp {
        read(&self.layout.floor(name))
    }
}

/// Looks until etcd answers, as long as the session lives: a claim that waits has its place meanwhile.
async fn patiently<T, F: Future<Output = Result<T>>>(session: &Session, look: impl Fn() -> F) -> Result<T> {
    let looking = async {
        loop {
            match look().await {
                Err(error) if error.is_retryable() && error.kind() != ErrorKind::Lost => {
                    tokio::time::sleep(PAUSE).await
                }
                seen => return seen,
            }
        }
    };
    tokio::select! {
        biased;
        seen = looking => seen,
        () = session.ended() => Err(over()),
    }
}

/// What a grant must carry to find its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) lease: i64,
    pub(crate) revision: i64,
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}.{}", self.lease, self.revision)
    }
}

impl Handle {
    pub(crate) fn of(grant: &Grant) -> Result<Self> {
        let read = || {
            let (lease, revision) = grant.handle.as_deref()?.split_once('.')?;
            Some(Self { lease: i64::from_str_radix(lease, 16).ok()?, revision: revision.parse().ok()? })
        };
        read().ok_or_else(|| Error::invalid("this grant names no lease; it came from another engine"))
    }
}

fn note_age(claim: &Claim, revision: i64) {
    if let Some(party) = &claim.party {
        // The engine's time is its revision.
        party.note(Age(revision.unsigned_abs()));
    }
}

fn page(mode: Mode) -> i64 {
    if mode == Mode::Exclusive { TWO } else { PAGE }
}
