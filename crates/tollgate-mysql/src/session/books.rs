//! What this client holds and waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tollgate_core::{Claim, Details, Grant, LossCause, OwnerId, Token};

use super::connection::Connection;
use super::marks::Mark;
use crate::place::Place;

/// How long a lock is held, or waited for, before that is written down for those who look.
pub(super) const WORTH_NOTING: Duration = Duration::from_millis(100);

/// A claim, with the connection that its lock hangs on.
pub(super) struct Entry {
    pub(super) claim: Claim,
    /// Where the connection ends.
    pub(super) place: Place,
    /// Whether it may stand in a queue.
    pub(super) waits: bool,
    pub(super) since: Instant,
    /// None once the connection is lost.
    pub(super) connection: tokio::sync::Mutex<Option<Connection>>,
    state: Mutex<State>,
    /// Told when the server has forgotten it, or an operator has revoked it.
    pub(super) lost: watch::Sender<Option<LossCause>>,
}

/// What is known of a claim.
#[derive(Debug)]
pub(super) struct State {
    /// It is in.
    pub(super) token: Option<Token>,
    /// It has been seen in the queue.
    pub(super) queued: bool,
    pub(super) details: Details,
    /// What is to be written down is not what was.
    pub(super) outdated: bool,
    /// Something was written down, or may be.
    pub(super) written: bool,
    /// The server has forgotten it, or could not be asked for too long.
    pub(super) given_up: bool,
    pub(super) over: bool,
}

impl Entry {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it is lost, if it is.
    pub(super) fn loss(&self) -> Option<LossCause> {
        *self.lost.borrow()
    }

    /// Notes why it is lost. The first cause stays.
    pub(super) fn lose(&self, cause: LossCause) {
        self.lost.send_if_modified(|lost| lost.is_none() && lost.replace(cause).is_none());
    }

    /// What stands for its grant among those that operators broke; none before it is granted.
    pub(super) fn mark(&self) -> Option<Mark> {
        self.state().token.map(|token| Mark::of(&self.claim.name, self.place.id, token))
    }
}

/// A claim that is over: its connection, if that lives, and what was written of it.
pub(super) struct Leaver {
    /// The number of the connection.
    pub(super) id: u32,
    /// The mark of a grant that an operator broke.
    pub(super) mark: Option<Mark>,
    /// Kept until what was written is removed.
    _connection: Option<Connection>,
}

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

    /// Enters a claim that asks over `connection`.
    pub(super) fn enter(&self, claim: &Claim, connection: Connection, waits: bool) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            claim: claim.clone(),
            place: connection.place().clone(),
            waits,
            since: Instant::now(),
            connection: tokio::sync::Mutex::new(Some(connection)),
            state: Mutex::new(State {
                token: None,
                queued: false,
                details: claim.details.clone(),
                outdated: true,
                written: false,
                given_up: false,
                over: false,
            }),
            lost: watch::Sender::new(None),
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
    pub(super) fn strike_out(&self, entry: &Entry, connection: Option<Connection>) -> Option<Connection> {
        self.entries().remove(&entry.claim.owner);
        let mark = entry.mark().filter(|_| entry.loss() == Some(LossCause::Revoked));
        let mut state = entry.state();
        state.over = true;
        if !state.written {
            return connection;
        }
        self.leavers().push(Leaver { id: entry.place.id, mark, _connection: connection });
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

    /// Whether there is nothing to be written down, now or soon.
    pub(super) fn is_written(&self) -> bool {
        let written = |entry: &Arc<Entry>| !entry.state().outdated;
        self.leavers().is_empty() && self.entries().values().all(written)
    }

    /// Whether there is nobody.
    pub(super) fn is_empty(&self) -> bool {
        self.leavers().is_empty() && self.entries().is_empty()
    }
}
