//! Taking a lock: a key in the queue, in one step with a look at those before it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_core::turn::{Place, Verdict, judge};
use tollgate_core::{
    Age, Attempt, Claim, Contention, Deadline, Details, Error, ErrorKind, Grant, LockName, Mode, OwnerId,
    Result, Token,
};

use crate::ask::{Asked, Parts};
use crate::backend::EtcdBackend;
use crate::error::over;
use crate::floor;
use crate::keys::{Span, place, tag};
use crate::line::Member;
use crate::links::Repeat;
use crate::ops::{
    created, created_at, how_many, nothing_in, queue, queued, range, read, revision, says, unchanged,
};
use crate::session::Session;
use crate::sessions::Spot;
use crate::wire::request_op::Request as Op;
use crate::wire::{Compare, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest};

/// How much of the queue is read at first: an exclusive claim needs itself and the one before it.
const TWO: i64 = 2;
/// The others look further back.
const PAGE: i64 = 64;

/// A claim's value, for people who look. Its mode is in its key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Value {
    /// The version of this.
    pub(crate) tollgate: u32,
    pub(crate) mode: Mode,
    #[serde(flatten)]
    pub(crate) details: Details,
    /// Whether an operator has asked the holder to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) revoked: bool,
}

impl Value {
    pub(crate) fn new(mode: Mode, details: Details) -> Self {
        Self { tollgate: 1, mode, details, revoked: false }
    }

    /// The value of a claim; `None` if another kind of client wrote it.
    pub(crate) fn of(claim: &KeyValue) -> Option<Self> {
        serde_json::from_slice(&claim.value).ok()
    }

    /// As it is written.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::invalid("the details of this claim cannot be serialised").caused_by(error)
        })
    }
}

/// What came of writing a holder's details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// They are written, or later ones are.
    Yes,
    /// The claim is gone.
    Gone,
    /// The holder is asked to leave.
    Revoked,
}

/// A claim that has its place in the queue.
pub(crate) struct Placed {
    pub(crate) session: Arc<Session>,
    spot: Spot,
    pub(crate) key: Vec<u8>,
    pub(crate) revision: i64,
    token: Token,
    pub(crate) view: View,
    /// Its place among this client's other claims that wait.
    pub(crate) fellows: Option<Member>,
}

/// What was seen of the queue before a claim.
pub(crate) struct View {
    /// The nearest first.
    pub(crate) ahead: Vec<Place<Vec<u8>>>,
    /// Whether there are no more.
    pub(crate) all: bool,
    /// The revision of the last key that was seen.
    pub(crate) last: i64,
    /// The revision of the look.
    pub(crate) known: i64,
}

impl View {
    /// What a look at `span` says of those before the claim that was created at `own`.
    pub(crate) fn of(span: &Span, own: i64, found: &RangeResponse, known: i64) -> Self {
        let before = found.kvs.iter().filter(|found| found.create_revision < own);
        let ahead = before.filter_map(|found| place(span, found)).collect();
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
        let mut placed = self.place(claim, None).await?;
        match self.verdict(claim, &mut placed).await? {
            Verdict::In => Ok(Attempt::Granted(self.granted(claim, &placed))),
            _ => {
                let ahead = placed.view.all.then_some(placed.view.ahead.len());
                self.remove(claim.owner, &placed.key, placed.revision).await?;
                if claim.standalone {
                    self.tidy_up(placed.spot.lease).await;
                }
                Ok(Attempt::Busy(Contention { ahead, retry_after: None }))
            }
        }
    }

    /// The grant that a claim with a lease of its own has already.
    pub(crate) async fn again(&self, claim: &Claim) -> Result<Option<Grant>> {
        let Some((spot, end)) = self.sessions.own_lease(claim.owner) else { return Ok(None) };
        let key = self.layout.claim(&claim.name, spot.lease, spot.slot, claim.mode);
        let Some(revision) = self.created(&key).await? else { return Err(over()) };
        let token = self.floor(&claim.name).await?.token(revision)?;
        let grant = Grant::new(claim, token, Deadline::At(end));
        Ok(Some(grant.with_handle(Handle::new(spot, revision, claim.owner).to_string())))
    }

    /// Takes a lock on which nobody has a claim. `None` if others' claims on longer names, or our own, are there: the
    /// queue has to be read then.
    async fn take_if_free(&self, claim: &Claim) -> Result<Option<Attempt>> {
        let span = self.layout.claims_on(&claim.name);
        let Asked { session, spot, key, answer } = self
            .ask(claim, |Parts { put, own, wanted, silence }| TxnRequest {
                compare: vec![nothing_in(&span), wanted],
                success: [vec![put, self.read_floor(&claim.name)], silence.clone()].concat(),
                // Nor must one before it take what comes free later.
                failure: [vec![queue(&span, i64::MAX, PAGE), own], silence].concat(),
            })
            .await?;
        let known = revision(&answer)?;
        if answer.succeeded {
            let token = self.token_of(claim, range(&answer, 1)?, known)?;
            let view = View { ahead: Vec::new(), all: true, last: known, known };
            let placed = Placed { session, spot, key, revision: known, token, view, fellows: None };
            return Ok(Some(Attempt::Granted(self.granted(claim, &placed))));
        }
        let View { ahead, all, .. } = View::of(&span, i64::MAX, range(&answer, 0)?, known);
        // A copy before this one may have taken it, and others may have come since.
        if ahead.is_empty() || range(&answer, 1)?.count > 0 {
            return Ok(None);
        }
        note_age(claim, known);
        self.sessions.forget_clean(claim.owner);
        if claim.standalone {
            self.tidy_up(spot.lease).await;
        }
        Ok(Some(Attempt::Busy(Contention { ahead: all.then_some(ahead.len()), retry_after: None })))
    }

    /// Puts the claim into the queue, and finds out in the same step whether it is alone there. The same claim again keeps its
    /// place.
    ///
    /// Those before it are read afterwards, if there are any: etcd reads and sorts the whole queue for that, and while it
    /// does so in a transaction nothing else goes on. Where others of this client wait, it need not even count them.
    pub(crate) async fn place(&self, claim: &Claim, fellows: Option<Member>) -> Result<Placed> {
        let span = self.layout.claims_on(&claim.name);
        let is_crowded = fellows.as_ref().is_some_and(|fellows| fellows.shared_line().is_some());
        let count = || if is_crowded { Vec::new() } else { vec![how_many(&span)] };
        let before = self.lines.latest();
        let Asked { session, spot, key, answer } = self
            .ask(claim, |Parts { put, wanted, silence, .. }| TxnRequest {
                compare: vec![wanted],
                success: [vec![put, self.read_floor(&claim.name)], count(), silence].concat(),
                failure: Vec::new(),
            })
            .await?;
        if !answer.succeeded {
            return Err(Error::new(ErrorKind::Lost, "this claim was withdrawn; make another").retryable(true));
        }
        let known = revision(&answer)?;
        let own = created(&answer, 0, known)?;
        let token = self.token_of(claim, range(&answer, 1)?, own)?;
        let all = !is_crowded && range(&answer, 2)?.count == 1;
        self.lines.placed(known, before);
        if let Some(fellows) = &fellows {
            fellows.is_placed(own, Place { key: key.clone(), mode: claim.mode });
        }
        let view = View { ahead: Vec::new(), all, last: own, known };
        Ok(Placed { session, spot, key, revision: own, token, view, fellows })
    }

    /// The revision that created a key that is there.
    async fn created(&self, key: &[u8]) -> Result<Option<i64>> {
        let request = RangeRequest { key: key.to_vec().into(), keys_only: true, ..RangeRequest::default() };
        Ok(self.links.range(request).await?.kvs.first().map(|found| found.create_revision))
    }

    /// Judges the claim, and reads as much more of the queue as that takes.
    pub(crate) async fn verdict(&self, claim: &Claim, placed: &mut Placed) -> Result<Verdict<Vec<u8>>> {
        let span = self.layout.claims_on(&claim.name);
        loop {
            let verdict = judge(claim.mode, &placed.view.ahead, placed.view.all);
            if verdict != Verdict::More {
                return Ok(verdict);
            }
            let is_first = placed.view.last == placed.revision;
            if is_first && let Some(view) = self.view_of_all(claim, placed).await? {
                placed.view = view;
                continue;
            }
            let many = if is_first { page(claim.mode) } else { PAGE * 4 };
            // Any member that knows of us knows of those who were there before.
            let request = queued(&span, placed.view.last - 1, many);
            let answer = self.read_as_of(request, placed.view.known).await?;
            let now = answer.header.map_or(0, |header| header.revision);
            let known = if is_first { now } else { placed.view.known };
            let next = View::of(&span, placed.revision, &answer, known);
            // None is ever added before us: what was seen is at most too much.
            placed.view.ahead.extend(next.ahead);
            (placed.view.all, placed.view.last, placed.view.known) = (next.all, next.last, known);
        }
    }

    /// A permit that got in writes its key again: the next one waits for that. An etcd that takes nothing more keeps nobody from
    /// being in; the next one looks by itself, only later.
    pub(crate) async fn tell_those_behind(&self, claim: &Claim, placed: &Placed) -> Result<()> {
        let value = Value::new(claim.mode, claim.details.clone());
        // Not over an operator's mark: such a holder is asked to leave.
        let unmarked = vec![created_at(&placed.key, placed.revision), says(&placed.key, value.to_bytes()?)];
        if let Ok(false) = self.put_if(unmarked, &placed.key, &value).await
            && let Ok(None) = self.claim_at(&placed.key, placed.revision).await
        {
            return Err(over());
        }
        Ok(())
    }

    /// The claim with this key, if it is the one that was created at `revision`.
    pub(crate) async fn claim_at(&self, key: &[u8], revision: i64) -> Result<Option<KeyValue>> {
        let request = RangeRequest { key: key.to_vec().into(), ..RangeRequest::default() };
        let found = self.links.range(request).await?.kvs.into_iter().next();
        Ok(found.filter(|found| found.create_revision == revision))
    }

    /// Replaces a holder's details, unless it has written later ones: a request may arrive after its successor.
    pub(crate) async fn say(&self, key: &[u8], revision: i64, value: &Value) -> Result<Said> {
        loop {
            let Some(found) = self.claim_at(key, revision).await? else { return Ok(Said::Gone) };
            let said = Value::of(&found);
            if said.as_ref().is_some_and(|said| said.revoked) {
                return Ok(Said::Revoked);
            }
            if said.is_some_and(|said| said.details.revision > value.details.revision)
                || self.put_if(vec![unchanged(key, found.mod_revision)], key, value).await?
            {
                return Ok(Said::Yes);
            }
        }
    }

    /// Replaces the value of a claim if `compare` holds.
    pub(crate) async fn put_if(&self, compare: Vec<Compare>, key: &[u8], value: &Value) -> Result<bool> {
        let put = PutRequest {
            key: key.to_vec().into(),
            value: value.to_bytes()?.into(),
            ignore_lease: true,
            ..PutRequest::default()
        };
        let success = vec![RequestOp { request: Some(Op::RequestPut(put)) }];
        let request = TxnRequest { compare, success, failure: Vec::new() };
        Ok(self.links.txn(request, Repeat::Yes).await?.succeeded)
    }

    pub(crate) fn granted(&self, claim: &Claim, placed: &Placed) -> Grant {
        let deadline = placed.session.deadline();
        if claim.standalone
            && let Deadline::At(end) = deadline
        {
            self.sessions.abandon(claim.owner, end);
        }
        let handle = Handle::new(placed.spot, placed.revision, claim.owner);
        let age = claim.party.as_ref().and_then(|party| party.stamp().age);
        Grant::new(claim, placed.token, deadline).with_age(age).with_handle(handle.to_string())
    }

    /// The token of a claim, by the floor that was read in the same step.
    fn token_of(&self, claim: &Claim, floor: &RangeResponse, revision: i64) -> Result<Token> {
        note_age(claim, revision);
        floor::read(floor.kvs.first())?.token(revision)
    }

    fn read_floor(&self, name: &LockName) -> RequestOp {
        read(&self.layout.floor(name))
    }
}

/// What a grant must carry to find its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) lease: i64,
    pub(crate) slot: u32,
    pub(crate) revision: i64,
    /// Whose grant this is: a key does not tell.
    owner: u64,
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lease, slot, revision, owner } = self;
        write!(f, "{lease:x}.{slot}.{revision}.{owner:x}")
    }
}

impl Handle {
    fn new(Spot { lease, slot }: Spot, revision: i64, owner: OwnerId) -> Self {
        Self { lease, slot, revision, owner: tag(owner) }
    }

    /// Whether it was given to this owner.
    pub(crate) fn is_of(self, owner: OwnerId) -> bool {
        self.owner == tag(owner)
    }

    pub(crate) fn of(grant: &Grant) -> Result<Self> {
        let read = || {
            let (lease, rest) = grant.handle.as_deref()?.split_once('.')?;
            let (slot, rest) = rest.split_once('.')?;
            let (revision, owner) = rest.split_once('.')?;
            Some(Self {
                lease: i64::from_str_radix(lease, 16).ok()?,
                slot: slot.parse().ok()?,
                revision: revision.parse().ok()?,
                owner: u64::from_str_radix(owner, 16).ok()?,
            })
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

pub(crate) fn page(mode: Mode) -> i64 {
    if mode == Mode::Exclusive { TWO } else { PAGE }
}
