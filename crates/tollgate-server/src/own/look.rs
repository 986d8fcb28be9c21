//! Looking: one lock, with its tag and the wait for a change, and pages of locks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Details, LockName, Moment};
use tollgate_engine::LockView;
use tollgate_proto::{Holder, Lock, LockQuery, Locks, LocksQuery, Problem, Waiter, Watch as Of};

use super::driver::TableService;
use super::watch::Watch;
use crate::service::Looked;
use crate::show::{kind, limit, millis, number, text, unix_ms};

/// The most positions of the table that are looked at in one turn of the server.
pub(super) const PER_TURN: usize = 1024;

/// One lock. With the tag that it still has, the call waits for a change.
pub(super) async fn lock(
    service: &TableService,
    query: LockQuery,
    known: Option<String>,
) -> Result<Looked, Problem> {
    let watch = Watch::new(&service.inner, &query.name);
    let end = tokio::time::Instant::now() + Duration::from_millis(query.wait_ms);
    loop {
        let changed = watch.changed();
        let lock = seen(service, &query.name);
        let tag = tag(&lock, query.watch);
        if known.as_deref() != Some(&*tag) {
            return Ok(Looked::Changed(lock, tag));
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(end) => return Ok(Looked::Unchanged(tag)),
            () = service.stopped() => return Ok(Looked::Unchanged(tag)),
        }
    }
}

/// What changes when holders or waiters do, and not when a grant is renewed.
fn tag(lock: &Lock, of: Of) -> String {
    let mut hasher = DefaultHasher::new();
    for holder in &lock.holders {
        (holder.token, &holder.host, holder.pid, &holder.meta).hash(&mut hasher);
    }
    if of == Of::All {
        lock.waiters.len().hash(&mut hasher);
        for waiter in &lock.waiters {
            (&waiter.host, waiter.pid, &waiter.meta, waiter.limit).hash(&mut hasher);
        }
    }
    let kind = match of {
        Of::All => 'a',
        Of::Holders => 'h',
    };
    format!("\"{kind}{:016x}\"", hasher.finish())
}

/// A page of locks. The cursor is a position in the table.
pub(super) async fn locks(service: &TableService, query: LocksQuery) -> Result<Locks, Problem> {
    let mut position = match &query.after {
        None => 0,
        Some(after) => after.parse::<usize>().map_err(|_| {
            Problem::invalid("after", "must be `next` of the page before; leave it out for the first page")
        })?,
    };
    let mut locks = Vec::new();
    loop {
        let room = query.limit as usize - locks.len();
        let next = service.look(|table, now| {
            let (views, next) = table.page(&query.prefix, position, room.min(PER_TURN));
            locks.extend(views.iter().map(|view| shown(view, now)));
            next
        });
        match next {
            None => return Ok(Locks { locks, next: None }),
            Some(next) if locks.len() == query.limit as usize => {
                return Ok(Locks { locks, next: Some(next.to_string()) });
            }
            Some(next) => position = next,
        }
        // A long search for a rare prefix lets other requests pass.
        tokio::task::yield_now().await;
    }
}

/// A lock as it is shown; both lists are empty when it is free.
pub(super) fn seen(service: &TableService, name: &LockName) -> Lock {
    service.look(|table, now| match table.inspect(name) {
        Some(view) => shown(&view, now),
        None => Lock { name: name.clone(), holders: Vec::new(), waiters: Vec::new() },
    })
}

pub(super) fn shown(view: &LockView<'_, Arc<Details>>, now: Moment) -> Lock {
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

/// Since the claim arrived, by the server's wall clock: for display.
fn waited(since_ms: u64) -> u64 {
    unix_ms().saturating_sub(since_ms)
}
