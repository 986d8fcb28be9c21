//! Looking at a queue with what this client knows of it already.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::turn::Place;
use tollgate_core::{Claim, Error, ErrorKind, Result};

use crate::acquire::{Placed, View};
use crate::backend::EtcdBackend;
use crate::error::over;
use crate::keys::{Span, place};
use crate::line::{Ahead, Line, Member};
use crate::links::{Links, Repeat};
use crate::ops;
use crate::wait::{AsOf, read_as_of, revision};
use crate::wire::request_op::Request as Op;
use crate::wire::{RangeRequest, RequestOp, TxnRequest};

/// How many of those before a claim are asked for by their keys. Where more have left meanwhile, the queue is read.
const FEW: usize = 8;
/// How much of a queue is read at once.
const PAGE: i64 = 2_000;

impl EtcdBackend {
    /// Who is before a claim, as this client knows that has others there, too. `None` if it has not, or if the claim is not
    /// one that waits for all before it.
    pub(crate) async fn view_of_all(&self, claim: &Claim, placed: &Placed) -> Result<Option<View>> {
        let Some(line) = placed.fellows.as_ref().and_then(Member::shared_line) else { return Ok(None) };
        if line.bound(placed.revision).is_none() {
            self.read_line(line, claim, placed.revision).await?;
        }
        Ok(line.bound(placed.revision).map(|nearest| {
            let (all, ahead) = (nearest.is_none(), nearest.into_iter().collect());
            // When it was there is not known: whoever watches it has to ask.
            View { ahead, all, last: placed.revision, known: if all { placed.view.known } else { 0 } }
        }))
    }

    /// Reads the queue for all of this client that wait in it. On the keeper: others wait for it, too, and whoever asked may be
    /// stopped, or not be polled.
    async fn read_line(&self, line: &Arc<Line>, claim: &Claim, own: i64) -> Result<()> {
        let (line, span, links) = (line.clone(), self.layout.claims_on(&claim.name), self.links.clone());
        let reading = self
            .links
            .keeper()
            .spawn(async move { line.know(own, || whole_queue(&links, &span, own)).await });
        reading.await.unwrap_or_else(|panic| {
            Err(Error::new(ErrorKind::Unexpected, "the task that reads the queue did not finish")
                .caused_by(panic))
        })
    }

    /// Looks whether our own key and those nearest before it are there. `None` if that does not tell who is the nearest.
    pub(crate) async fn look_at_the_nearest(
        &self,
        claim: &Claim,
        placed: &Placed,
        as_of: AsOf,
    ) -> Result<Option<View>> {
        let Some(line) = placed.fellows.as_ref().and_then(Member::shared_line) else { return Ok(None) };
        if line.before(placed.revision, 0).is_none() {
            self.read_line(line, claim, placed.revision).await?;
        }
        let Some(Ahead { nearest, all }) = line.before(placed.revision, FEW) else { return Ok(None) };
        let keys = std::iter::once(&placed.key).chain(nearest.iter().map(|(_, place)| &place.key));
        let keys: Vec<_> = keys.map(Vec::as_slice).collect();
        let least = match as_of {
            AsOf::Revision(least) if placed.session.is_in_time() => Some(least),
            _ => None,
        };
        let (known, created) = self.created_at(&keys, least).await?;
        let Some((own, created)) = created.split_first() else { return Err(over()) };
        if *own != Some(placed.revision) {
            return Err(over());
        }
        let is_there = |(at, (revision, _)): &(usize, &(i64, _))| created[*at] == Some(*revision);
        let there = nearest.iter().enumerate().find(is_there).map(|(at, _)| at);
        for (revision, _) in &nearest[..there.unwrap_or(nearest.len())] {
            line.left(*revision);
        }
        let ahead: Vec<_> = there.map(|at| nearest[at].1.clone()).into_iter().collect();
        let none_left = ahead.is_empty() && all;
        Ok((none_left || !ahead.is_empty()).then_some(View {
            ahead,
            all: none_left,
            last: placed.revision,
            known,
        }))
    }

    /// When each of `keys` was created, if it is there: as of now, or as any member has it at revision `least` or later.
    async fn created_at(&self, keys: &[&[u8]], least: Option<i64>) -> Result<(i64, Vec<Option<i64>>)> {
        let ask = |serializable| {
            let success = keys.iter().map(|key| {
                let range = RangeRequest {
                    key: key.to_vec().into(),
                    keys_only: true,
                    serializable,
                    ..RangeRequest::default()
                };
                RequestOp { request: Some(Op::RequestRange(range)) }
            });
            let (compare, failure) = (Vec::new(), Vec::new());
            self.links.txn(TxnRequest { compare, success: success.collect(), failure }, Repeat::Yes)
        };
        let mut answer = ask(least.is_some()).await?;
        if least.is_some_and(|least| ops::revision(&answer).is_ok_and(|known| known < least)) {
            answer = ask(false).await?;
        }
        let created = (0..keys.len())
            .map(|at| Ok(ops::range(&answer, at)?.kvs.first().map(|found| found.create_revision)));
        Ok((ops::revision(&answer)?, created.collect::<Result<_>>()?))
    }
}

/// All claims on a lock that were there at a revision after `own`, and that revision.
async fn whole_queue(links: &Links, span: &Span, own: i64) -> Result<(i64, BTreeMap<i64, Place<Vec<u8>>>)> {
    let (mut from, mut least, mut as_of) = (span.key.clone(), own, None);
    let mut there = BTreeMap::new();
    loop {
        let answer = read_as_of(links, page_of(span, from), least).await?;
        // Of what came while it was read, some may have been missed.
        let known = *as_of.get_or_insert(revision(&answer));
        least = known;
        let old = answer.kvs.iter().filter(|found| found.create_revision <= known);
        there.extend(old.filter_map(|found| Some((found.create_revision, place(span, found)?))));
        match answer.kvs.last() {
            Some(last) if answer.more => from = [&last.key[..], b"\0"].concat(),
            _ => return Ok((known, there)),
        }
    }
}

/// A page of what is in `span`, in the order of its keys: etcd reads no more than that.
fn page_of(span: &Span, from: Vec<u8>) -> RangeRequest {
    RangeRequest {
        key: from.into(),
        range_end: span.end.clone().into(),
        limit: PAGE,
        keys_only: true,
        ..RangeRequest::default()
    }
}
