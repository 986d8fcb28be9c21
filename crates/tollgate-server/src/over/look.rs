//! Looking at the engine's locks, and following its events.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tollgate_core::{Happening, LockName, LockState, Locks, OwnerId};
use tollgate_proto::{
    self as proto, Contended, Event, EventId, EventKind, Holder, Lock, LockQuery, LocksQuery, LongestHeld,
    LongestWaited, Problem, Timestamp, Top, Waiter,
};

use super::problems::problem;
use super::service::OverService;
use crate::service::{EventStream, Looked};
use crate::show::{describe, kind, limit, millis, number, text, unix_ms};

/// How often a lock is looked at while a call waits for its change.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How many entries each list of [`top`] has.
const ENTRIES: usize = 10;

pub(super) async fn lock(
    service: &OverService,
    query: LockQuery,
    known: Option<String>,
) -> Result<Looked, Problem> {
    let end = tokio::time::Instant::now() + Duration::from_millis(query.wait_ms);
    loop {
        let state = service.locks.inspect(query.name.as_str()).await.map_err(|error| problem(&error))?;
        let lock = match state {
            Some(state) => lock_of(&state),
            None => Lock { name: query.name.clone(), holders: Vec::new(), waiters: Vec::new() },
        };
        let mut hasher = DefaultHasher::new();
        for holder in &lock.holders {
            (holder.token, &holder.host, holder.pid).hash(&mut hasher);
        }
        if query.watch == proto::Watch::All {
            lock.waiters.iter().for_each(|waiter| (&waiter.host, waiter.pid).hash(&mut hasher));
        }
        let tag = format!("\"{:?}{:016x}\"", query.watch, hasher.finish());
        if known.as_deref() != Some(&*tag) {
            return Ok(Looked::Changed(lock, tag));
        }
        let now = tokio::time::Instant::now();
        if now >= end {
            return Ok(Looked::Unchanged(tag));
        }
        tokio::time::sleep_until(end.min(now + LOOK_AGAIN)).await;
    }
}

/// Reads the whole list for each page: engines list in no order that a cursor could keep. The
/// cursor is the last name, and pages are in the order of names.
pub(super) async fn locks(service: &OverService, query: LocksQuery) -> Result<proto::Locks, Problem> {
    let mut found = Vec::new();
    let mut listed = service.locks.list(&query.prefix);
    while let Some(state) = listed.next().await {
        let state = state.map_err(|error| problem(&error))?;
        if query.after.as_deref().is_none_or(|after| state.name.as_str() > after) {
            found.push(lock_of(&state));
        }
    }
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let more = found.len() > query.limit as usize;
    found.truncate(query.limit as usize);
    let next = found.last().filter(|_| more).map(|lock| lock.name.to_string());
    Ok(proto::Locks { locks: found, next })
}

pub(super) async fn top(service: &OverService) -> Result<Top, Problem> {
    let mut top = Top { contended: Vec::new(), longest_held: Vec::new(), longest_waited: Vec::new() };
    let mut listed = service.locks.list("");
    while let Some(state) = listed.next().await {
        let lock = lock_of(&state.map_err(|error| problem(&error))?);
        if !lock.waiters.is_empty() {
            top.contended.push(Contended {
                name: lock.name.clone(),
                holding: lock.holders.len() as u64,
                waiting: lock.waiters.len() as u64,
                oldest_wait_ms: lock.waiters.iter().filter_map(|waiter| waiter.waited_ms).max(),
            });
        }
        let held = lock.holders.into_iter().map(|holder| LongestHeld { name: lock.name.clone(), holder });
        top.longest_held.extend(held);
        let waited = lock.waiters.into_iter().map(|waiter| LongestWaited { name: lock.name.clone(), waiter });
        top.longest_waited.extend(waited);
        if top.longest_held.len() + top.longest_waited.len() > 4096 {
            shorten(&mut top);
        }
    }
    shorten(&mut top);
    Ok(top)
}

fn shorten(top: &mut Top) {
    top.contended.sort_by_key(|lock| std::cmp::Reverse(lock.waiting));
    top.contended.truncate(ENTRIES);
    top.longest_held.sort_by_key(|lock| std::cmp::Reverse(lock.holder.held_ms));
    top.longest_held.truncate(ENTRIES);
    top.longest_waited.sort_by_key(|lock| std::cmp::Reverse(lock.waiter.waited_ms));
    top.longest_waited.truncate(ENTRIES);
}

/// The events of the engine from now on. They have no numbers that another server would know, so a
/// client that comes back lists again.
pub(super) fn events(locks: Locks, boot: u64, prefix: String, is_back: bool) -> EventStream {
    let event = move |sequence: u64, kind: EventKind| Event {
        id: EventId { boot, sequence },
        event: kind.into(),
        happened_at: Timestamp::from_unix_ms(unix_ms()),
        name: None,
        token: None,
        holder: None,
    };
    let reset = is_back.then(|| event(0, EventKind::Reset));
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    tokio::task::spawn_local(async move {
        let mut sequence = 0;
        loop {
            let mut happening = locks.events(&prefix);
            while let Some(Ok(happened)) = next(&mut happening).await {
                sequence += 1;
                let kind = match happened.what {
                    Happening::Granted => EventKind::Granted,
                    Happening::Released => EventKind::Released,
                    Happening::Expired => EventKind::Expired,
                    Happening::Revoked => EventKind::Revoked,
                    _ => EventKind::Ended,
                };
                let told =
                    Event { name: Some(happened.name), token: Some(happened.token), ..event(sequence, kind) };
                if sender.send(told).await.is_err() {
                    return;
                }
            }
            // The engine was away: what happened meanwhile is not known.
            sequence += 1;
            if sender.send(event(sequence, EventKind::Reset)).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let following = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|event| (event, receiver))
    });
    Box::pin(stream::iter(reset).chain(following))
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    stream.next().await
}

/// The problem with the lock's holders, and the number of its waiters.
pub(super) async fn with_holders(service: &OverService, name: &LockName, mut waiting: Problem) -> Problem {
    if let Ok(Some(state)) = service.locks.inspect(name.as_str()).await {
        describe(&mut waiting, lock_of(&state));
    }
    waiting
}

pub(super) fn lock_of(state: &LockState) -> Lock {
    let since = |since_ms: u64| (since_ms != 0).then(|| unix_ms().saturating_sub(since_ms));
    let holders = state.holders.iter().map(|holder| Holder {
        token: holder.token,
        mode: kind(holder.mode).into(),
        limit: limit(holder.mode),
        by: None,
        host: text(&holder.details.host),
        pid: number(holder.details.pid),
        held_ms: since(holder.details.since_ms),
        expires_in_ms: holder.expires_in.map(millis),
        meta: holder.details.meta.clone(),
        traceparent: None,
    });
    let waiters = state.waiters.iter().map(|waiter| Waiter {
        mode: kind(waiter.mode).into(),
        limit: limit(waiter.mode),
        by: None,
        host: text(&waiter.details.host),
        pid: number(waiter.details.pid),
        waited_ms: since(waiter.details.since_ms),
        meta: waiter.details.meta.clone(),
        traceparent: None,
    });
    Lock { name: state.name.clone(), holders: holders.collect(), waiters: waiters.collect() }
}

/// Which run of the server this is.
pub(super) fn boot() -> u64 {
    OwnerId::random().to_bits() as u64
}
