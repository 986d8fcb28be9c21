//! What is seen of the table, and what happened in it. What is not durable is not shown.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Age, Details, LockName, Mode, PartyId, Token};
use tollgate_engine::{self as engine, LockView};

use super::happenings::Happened;
use super::request::Key;
use super::state::{Kept, Table};

impl Table {
    /// What happened to grants since the last call, as far as it is durable, in order.
    pub fn take_happened(&mut self) -> Vec<Happened> {
        let happened: Vec<Happened> = std::iter::from_fn(|| self.happenings.pop()).collect();
        // Calls that watch a lock looked before this was durable, and saw nothing of it.
        for happened in &happened {
            self.note_change(&happened.name);
        }
        happened
    }

    /// Notes from now on which locks change, or no longer.
    pub fn set_watched(&mut self, is_watched: bool) {
        self.is_watched = is_watched;
        self.changed.clear();
    }

    /// Locks whose holders or waiters changed since the last call; renewals change nothing.
    pub fn take_changed(&mut self) -> Vec<LockName> {
        std::mem::take(&mut self.changed)
    }

    /// Holders and waiters of a lock, without grants that are not durable yet.
    pub fn inspect(&self, name: &LockName) -> Option<LockView<'_, Kept>> {
        self.engine.inspect(name).map(|view| self.shown(view))
    }

    /// The locks at up to `most` positions of the table from `from` on, and where the next page
    /// begins; a lock that stays is on one page.
    pub fn page(&self, prefix: &str, from: usize, most: usize) -> (Vec<LockView<'_, Kept>>, Option<usize>) {
        let (views, next) = self.engine.page(prefix, from, most);
        let shown = views.into_iter().map(|view| self.shown(view));
        (shown.filter(|view| !(view.holders.is_empty() && view.waiters.is_empty())).collect(), next)
    }

    fn shown<'a>(&self, mut view: LockView<'a, Kept>) -> LockView<'a, Kept> {
        view.holders.retain(|holder| self.happenings.is_shown(holder.token));
        view
    }

    /// How much the engine holds.
    pub fn stats(&self) -> engine::Stats {
        self.engine.stats()
    }

    /// What is known of a grant.
    pub fn held(&self, key: &Key) -> Option<Held> {
        let grant = self.engine.grant(&key.name, key.owner)?;
        let (mode, ttl, is_revoked) = (grant.mode, grant.ttl, grant.is_revoked);
        let age = grant.party.and_then(|party| party.age);
        let (party, lock_delay) = (grant.party.map(|party| party.id), grant.lock_delay);
        Some(Held { mode, ttl, lock_delay, is_revoked, party, age, details: grant.details })
    }

    /// No token above this one was given.
    pub fn last_token(&self) -> Option<Token> {
        self.engine.last_token()
    }

    /// How many claims wait or have a grant that no client has heard of.
    pub fn open_claims(&self) -> usize {
        self.claims.len()
    }
}

/// A grant, for its holder.
#[derive(Debug, Clone)]
pub struct Held {
    /// How the holder shares the lock.
    pub mode: Mode,
    /// The longest time to live that it was given.
    pub ttl: Duration,
    /// Whether an operator asked the holder to leave.
    pub is_revoked: bool,
    /// How long nothing is granted after a loss.
    pub lock_delay: Duration,
    /// The claim's party.
    pub party: Option<PartyId>,
    /// The age of the claim's party.
    pub age: Option<Age>,
    /// What people see who look.
    pub details: Arc<Details>,
}
