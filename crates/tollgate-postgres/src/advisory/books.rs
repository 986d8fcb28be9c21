//! What this client holds and waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tollgate_core::{Claim, Details, Grant, OwnerId, Token};

use super::session::{Place, Session};

/// How long a lock is held, or waited for, before that is written down for those who look.
pub(super) const WORTH_NOTING: Duration = Duration::from_millis(50);

/// A claim, with the connection that its lock hangs on.
pub(super) struct Entry {
    pub(super) claim: Claim,
    pub(super) place: Place,
    /// Whether it may stand in a queue.
    pub(super) waits: bool,
    pub(super) since: Instant,
    /// None once the connection is lost.
    pub(super) session: tokio::sync::Mutex<Option<Session>>,
    state: Mutex<State>,
    /// Rung when somebody has found out how the wait ends.
    pub(super) verdict: Notify,
}

/// What is known of a claim.
#[derive(Debug)]
pub(super) struct State {
    /// It is in.
    pub(super) token: Option<Token>,
    /// It has been seen in the queue.
    pub(super) queued: bool,
    /// Why its wait is over.
    pub(super) hopeless: Option<Hopeless>,
    /// For how many looks its wait has been over at the server without its having heard of it.
    pub(super) unheard: u32,
    /// Who it is, if that is no longer what the claim said.
    pub(super) details: Option<Details>,
    /// What is to be written down is not what was.
    pub(super) outdated: bool,
    /// Something was written down, or may be.
    pub(super) written: bool,
    /// An operator has marked it.
    pub(super) revoked: bool,
    pub(super) over: bool,
}

/// Why waiting does not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hopeless {
    /// The server knows nothing of the connection.
    Disconnected,
    /// A lock of this other name has the same number.
    Collision(String),
}

impl Entry {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// PostgreSQL has the claim in its queue.
    pub(super) fn note_queued(&self) {
        self.state().queued = true;
        self.claim.wait_status.set_queued();
    }
}

/// What a connection was called of which something is written down, and the connection itself, if it lives.
type Leaver = (Arc<str>, Option<Session>);

/// All claims of this client that are not over.
#[derive(Default)]
pub(super) struct Books {
    entries: Mutex<HashMap<OwnerId, Arc<Entry>>>,
    /// Of whom something is written down that is no longer so.
    leavers: Mutex<Vec<Leaver>>,
}

impl Books {
    fn entries(&self) -> MutexGuard<'_, HashMap<OwnerId, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a claim that asks over `session`.
    pub(super) fn enter(&self, claim: &Claim, session: Session, waits: bool) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            claim: claim.clone(),
            place: session.place().clone(),
            waits,
            since: Instant::now(),
            session: tokio::sync::Mutex::new(Some(session)),
            state: Mutex::new(State {
                token: None,
                queued: false,
                hopeless: None,
                unheard: 0,
                details: None,
                outdated: true,
                written: false,
                revoked: false,
                over: false,
            }),
            verdict: Notify::new(),
        });
        self.entries().insert(claim.owner, entry.clone());
        entry
    }

    pub(super) fn find(&self, owner: OwnerId) -> Option<Arc<Entry>> {
        self.entries().get(&owner).cloned()
    }

    /// The entry of a grant that was given here.
    pub(super) fn held(&self, grant: &Grant) -> Option<Arc<Entry>> {
        let entry = self.find(grant.owner)?;
        let is_it = entry.claim.name == grant.name && entry.state().token == Some(grant.token);
        is_it.then_some(entry)
    }

    /// Strikes a claim out. Answers with its connection if that can be used again at once; else whatever is written down
    /// must be removed first.
    pub(super) fn strike_out(&self, entry: &Entry, session: Option<Session>) -> Option<Session> {
        self.entries().remove(&entry.claim.owner);
        let mut state = entry.state();
        state.over = true;
        if !state.written {
            return session;
        }
        self.leavers().push((entry.place.label.clone(), session));
        None
    }

    fn leavers(&self) -> MutexGuard<'_, Vec<Leaver>> {
        self.leavers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who have left.
    pub(super) fn take_leavers(&self) -> Vec<Leaver> {
        std::mem::take(&mut *self.leavers())
    }

    pub(super) fn put_back(&self, leavers: Vec<Leaver>) {
        self.leavers().extend(leavers);
    }

    /// All claims, as they are now.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries().values().cloned().collect()
    }

    /// Whether there is nothing that has to be written down, now or soon, and nobody who waits.
    pub(super) fn is_quiet(&self) -> bool {
        let is_quiet = |entry: &Arc<Entry>| {
            let state = entry.state();
            !state.outdated && state.token.is_some()
        };
        self.leavers().is_empty() && self.entries().values().all(is_quiet)
    }
}
