//! The requests that locks are made of, and how their answers are taken apart.

use tollgate_core::Result;

use crate::error::unexpected;
use crate::keys::Span;
use crate::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::range_request::{SortOrder, SortTarget};
use crate::wire::request_op::Request as Op;
use crate::wire::response_op::Response as Done;
use crate::wire::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnResponse,
};

fn compare(key: &[u8], target: CompareTarget, to: TargetUnion) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.to_vec().into(),
        target_union: Some(to),
        ..Compare::default()
    }
}

/// The key is the one that was created at `revision`; there is none if that is zero.
pub(crate) fn created_at(key: &[u8], revision: i64) -> Compare {
    compare(key, CompareTarget::Create, TargetUnion::CreateRevision(revision))
}

/// The key was last written at `revision`; never if that is zero.
pub(crate) fn unchanged(key: &[u8], revision: i64) -> Compare {
    compare(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

/// The key has this value.
pub(crate) fn says(key: &[u8], value: Vec<u8>) -> Compare {
    compare(key, CompareTarget::Value, TargetUnion::Value(value.into()))
}

pub(crate) fn absent(key: &[u8]) -> Compare {
    created_at(key, 0)
}

pub(crate) fn nothing_in(span: &Span) -> Compare {
    Compare { range_end: span.end.clone().into(), ..absent(&span.key) }
}

pub(crate) fn put(key: &[u8], value: Vec<u8>, lease: i64) -> RequestOp {
    let put = PutRequest { key: key.to_vec().into(), value: value.into(), lease, ..PutRequest::default() };
    RequestOp { request: Some(Op::RequestPut(put)) }
}

/// The same, answered with what was there before.
pub(crate) fn replace(key: &[u8], value: Vec<u8>, lease: i64) -> RequestOp {
    let put = PutRequest {
        key: key.to_vec().into(),
        value: value.into(),
        lease,
        prev_kv: true,
        ..PutRequest::default()
    };
    RequestOp { request: Some(Op::RequestPut(put)) }
}

/// When the key was created that [`replace`] wrote at `now`.
pub(crate) fn created(answer: &TxnResponse, at: usize, now: i64) -> Result<i64> {
    match answer.responses.get(at).and_then(|response| response.response.as_ref()) {
        Some(Done::ResponsePut(put)) => Ok(put.prev_kv.as_ref().map_or(now, |before| before.create_revision)),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

/// How many keys are in `span`. etcd reads none of them for that.
pub(crate) fn how_many(span: &Span) -> RequestOp {
    let range = RangeRequest {
        key: span.key.clone().into(),
        range_end: span.end.clone().into(),
        count_only: true,
        ..RangeRequest::default()
    };
    RequestOp { request: Some(Op::RequestRange(range)) }
}

pub(crate) fn delete(key: &[u8]) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key.to_vec().into(), ..DeleteRangeRequest::default() }
}

pub(crate) fn read(key: &[u8]) -> RequestOp {
    let range = RangeRequest { key: key.to_vec().into(), ..RangeRequest::default() };
    RequestOp { request: Some(Op::RequestRange(range)) }
}

/// The claims of `span` that were created by `revision`, the latest first, so many of them.
pub(crate) fn queued(span: &Span, revision: i64, limit: i64) -> RangeRequest {
    RangeRequest {
        key: span.key.clone().into(),
        range_end: span.end.clone().into(),
        limit,
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Create.into(),
        keys_only: true,
        max_create_revision: if revision == i64::MAX { 0 } else { revision },
        ..RangeRequest::default()
    }
}

pub(crate) fn queue(span: &Span, revision: i64, limit: i64) -> RequestOp {
    RequestOp { request: Some(Op::RequestRange(queued(span, revision, limit))) }
}

pub(crate) fn revision(answer: &TxnResponse) -> Result<i64> {
    answer.header.map(|header| header.revision).ok_or_else(|| unexpected("no revision"))
}

pub(crate) fn range(answer: &TxnResponse, at: usize) -> Result<&RangeResponse> {
    match answer.responses.get(at).and_then(|response| response.response.as_ref()) {
        Some(Done::ResponseRange(range)) => Ok(range),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}
