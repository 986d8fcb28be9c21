//! The last 10 000 events, and the streams that follow them.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_core::{Details, Happening, Mode, OwnerId, Token};
use tollgate_proto::{Event, EventId, EventKind, Holder, Timestamp};

use crate::show::{kind, limit, number, text, unix_ms};
use crate::table::Happened;

/// How many events are kept for clients that reconnect.
const KEPT: usize = 10_000;

/// What happened, numbered within this run of the server.
pub(crate) struct EventLog {
    boot: u64,
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Logged>,
    appended: Rc<Notify>,
}

#[derive(Clone)]
pub(crate) struct Logged {
    pub(crate) at_ms: u64,
    pub(crate) happened: Happened,
}

impl EventLog {
    pub(super) fn new() -> Self {
        // Which run this is need not be secret, only different from every other.
        let boot = OwnerId::random().to_bits() as u64;
        Self { boot, first: 1, events: VecDeque::new(), appended: Rc::new(Notify::new()) }
    }

    pub(super) fn append(&mut self, happened: Vec<Happened>) {
        let at_ms = unix_ms();
        for happened in happened {
            if self.events.len() == KEPT {
                self.events.pop_front();
                self.first += 1;
            }
            self.events.push_back(Logged { at_ms, happened });
        }
        self.appended.notify_waiters();
    }

    /// Which run of the server this is.
    pub(super) fn boot(&self) -> u64 {
        self.boot
    }

    /// The number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Wakes when something was appended.
    pub(crate) fn appended(&self) -> Rc<Notify> {
        self.appended.clone()
    }

    /// The event of this number: `Err` if it is not kept any more, `Ok(None)` if it is not there
    /// yet.
    pub(crate) fn get(&self, number: u64) -> Result<Option<&Logged>, ()> {
        match number.checked_sub(self.first) {
            Some(at) => Ok(self.events.get(at as usize)),
            None => Err(()),
        }
    }

    /// The number after `last`, if events from there on are still known.
    pub(super) fn resume(&self, last: EventId) -> Option<u64> {
        let next = last.sequence.checked_add(1)?;
        (last.boot == self.boot && (self.first..=self.next()).contains(&next)).then_some(next)
    }

    /// An event as it is written.
    pub(super) fn event(&self, number: u64, logged: &Logged) -> Event {
        let Happened { name, token, what, holder } = &logged.happened;
        let kind = match what {
            Happening::Granted => EventKind::Granted,
            Happening::Released => EventKind::Released,
            Happening::Expired => EventKind::Expired,
            Happening::Revoked => EventKind::Revoked,
            _ => EventKind::Ended,
        };
        Event {
            id: EventId { boot: self.boot, sequence: number },
            event: kind.into(),
            happened_at: Timestamp::from_unix_ms(logged.at_ms),
            name: Some(name.clone()),
            token: Some(*token),
            holder: holder.as_ref().map(|(mode, details)| holder_of(*token, *mode, details)),
        }
    }

    /// What a client hears whose last event is not known any more: list again.
    pub(super) fn reset(&self) -> Event {
        Event {
            id: EventId { boot: self.boot, sequence: self.next().saturating_sub(1) },
            event: EventKind::Reset.into(),
            happened_at: Timestamp::from_unix_ms(unix_ms()),
            name: None,
            token: None,
            holder: None,
        }
    }
}

fn holder_of(token: Token, mode: Mode, details: &Arc<Details>) -> Holder {
    Holder {
        token: Some(token),
        mode: kind(mode).into(),
        limit: limit(mode),
        by: None,
        host: text(&details.host),
        pid: number(details.pid),
        held_ms: None,
        expires_in_ms: None,
        meta: details.meta.clone(),
        traceparent: None,
    }
}
