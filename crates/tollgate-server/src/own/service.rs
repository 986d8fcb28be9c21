//! The durable table as a [`Service`].

use std::rc::Rc;

use futures_util::stream;
use tollgate_proto::{
    Acquire, AcquireAll, Admit, Admitted, Break, Broken, Deadlocks, Event, EventId, EventsQuery, Extend,
    Grant, Grants, HealthStatus, Info, Keep, Kept, LockQuery, Locks, LocksQuery, Release, Released, Top,
    Withdraw,
};

use super::driver::{Inner, TableService};
use super::{acquire, calls, deadlocks, info, keep, look, set, top};
use crate::service::{Answering, EventStream, Looked, Service};

impl Service for TableService {
    fn acquire(&self, call: Acquire) -> Answering<'_, Grant> {
        Box::pin(acquire::acquire(self, call))
    }

    fn acquire_all(&self, call: AcquireAll) -> Answering<'_, Grants> {
        Box::pin(set::acquire_all(self, call))
    }

    fn keep(&self, call: Keep) -> Answering<'_, Kept> {
        Box::pin(keep::keep(self, call))
    }

    fn extend(&self, call: Extend) -> Answering<'_, Grant> {
        Box::pin(calls::extend(self, call))
    }

    fn release(&self, call: Release) -> Answering<'_, Released> {
        Box::pin(calls::release(self, call))
    }

    fn withdraw(&self, call: Withdraw) -> Answering<'_, Released> {
        Box::pin(calls::withdraw(self, call))
    }

    fn admit(&self, call: Admit) -> Answering<'_, Admitted> {
        Box::pin(calls::admit(self, call))
    }

    fn break_lock(&self, call: Break) -> Answering<'_, Broken> {
        Box::pin(calls::break_lock(self, call))
    }

    fn lock(&self, query: LockQuery, known: Option<String>) -> Answering<'_, Looked> {
        Box::pin(look::lock(self, query, known))
    }

    fn locks(&self, query: LocksQuery) -> Answering<'_, Locks> {
        Box::pin(look::locks(self, query))
    }

    fn events(&self, query: EventsQuery, last: Option<EventId>) -> Answering<'_, EventStream> {
        let inner = self.inner.clone();
        Box::pin(async move { Ok(follow(inner, query.prefix, last)) })
    }

    fn top(&self) -> Answering<'_, Top> {
        Box::pin(top::top(self))
    }

    fn deadlocks(&self) -> Answering<'_, Deadlocks> {
        Box::pin(deadlocks::deadlocks(self))
    }

    fn info(&self) -> Answering<'_, Info> {
        Box::pin(async { Ok(info::info(self)) })
    }

    fn health(&self) -> HealthStatus {
        if self.is_stopping() { HealthStatus::Stopping } else { HealthStatus::Ok }
    }
}

/// The events whose locks start with `prefix`, from the one after `last` on.
fn follow(inner: Rc<Inner>, prefix: String, last: Option<EventId>) -> EventStream {
    let (cursor, is_unknown) = {
        let log = inner.events.borrow();
        match last {
            None => (log.next(), false),
            Some(last) => log.resume(last).map_or((log.next(), true), |next| (next, false)),
        }
    };
    let reset = is_unknown.then(|| inner.events.borrow().reset());
    let events = stream::unfold((inner, prefix, cursor), |(inner, prefix, mut cursor)| async move {
        loop {
            let appended = inner.events.borrow().appended();
            let more = appended.notified();
            if let Some(event) = next(&inner, &prefix, &mut cursor) {
                return Some((event, (inner, prefix, cursor)));
            }
            more.await;
        }
    });
    Box::pin(stream::StreamExt::chain(stream::iter(reset), events))
}

/// The next event from `cursor` on, if it is there yet.
fn next(inner: &Inner, prefix: &str, cursor: &mut u64) -> Option<Event> {
    let log = inner.events.borrow();
    loop {
        match log.get(*cursor) {
            // The client reads more slowly than events come.
            Err(()) => {
                *cursor = log.next();
                return Some(log.reset());
            }
            Ok(None) => return None,
            Ok(Some(logged)) => {
                let number = *cursor;
                *cursor += 1;
                if logged.happened.name.as_str().starts_with(prefix) {
                    return Some(log.event(number, logged));
                }
            }
        }
    }
}
