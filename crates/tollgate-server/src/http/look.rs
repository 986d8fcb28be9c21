//! `GET /v1/lock`: holders and waiters of one lock.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::{Details, LockName, Mode, Moment};
use tollgate_engine::LockView;
use tollgate_proto::{Holder, Lock, LockQuery, ModeKind, Problem, Waiter, parse_query};

use super::Reply;
use crate::service::Service;

pub(super) fn lock(service: &Service, query: &str) -> Result<Reply, Problem> {
    let LockQuery { name, .. } = parse_query(query)?;
    Ok(Reply::json(&seen(service, &name)))
}

/// A lock as it is shown; both lists are empty when it is free.
pub(super) fn seen(service: &Service, name: &LockName) -> Lock {
    service.look(|table, now| match table.inspect(name) {
        Some(view) => shown(&view, now),
        None => Lock { name: name.clone(), holders: Vec::new(), waiters: Vec::new() },
    })
}

fn shown(view: &LockView<'_, Arc<Details>>, now: Moment) -> Lock {
    let holders = view.holders.iter().map(|holder| Holder {
        token: Some(holder.token),
        mode: kind(holder.mode).into(),
        limit: limit(holder.mode),
        by: None,
        host: text(&holder.details.host),
        pid: number(holder.details.pid),
        held_ms: Some(millis(now.since(holder.since))),
        expires_in_ms: Some(millis(holder.expires.since(now))),
        meta: holder.details.meta.clone(),
        traceparent: None,
    });
    let waiters = view.waiters.iter().map(|waiter| Waiter {
        mode: kind(waiter.mode).into(),
        limit: limit(waiter.mode),
        by: None,
        host: text(&waiter.details.host),
        pid: number(waiter.details.pid),
        waited_ms: Some(waited(waiter.details.since_ms)),
        meta: waiter.details.meta.clone(),
        traceparent: None,
    });
    Lock { name: view.name.clone(), holders: holders.collect(), waiters: waiters.collect() }
}

pub(super) fn kind(mode: Mode) -> ModeKind {
    match mode {
        Mode::Exclusive => ModeKind::Exclusive,
        Mode::Shared => ModeKind::Shared,
        Mode::Permit { .. } => ModeKind::Permit,
    }
}

pub(super) fn limit(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Permit { limit } => Some(limit.into()),
        _ => None,
    }
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn number(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

/// Since the claim arrived, by the server's wall clock: for display.
fn waited(since_ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(now).saturating_sub(since_ms)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
