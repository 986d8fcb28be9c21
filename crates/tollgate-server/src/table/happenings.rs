//! What happened to grants, told once it is durable, and which tokens may be shown.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tollgate_core::{Details, Happening, LockName, Mode, Token};
use tollgate_embedded::durable::Commit;

/// How many grants are remembered with their holders, so that their ends can name them.
const REMEMBERED: usize = 10_000;

/// Something that happened to a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    /// The lock.
    pub name: LockName,
    /// The token of the grant.
    pub token: Token,
    /// What happened.
    pub what: Happening,
    /// How the holder shares the lock, and its details; `None` if the grant is too old to be
    /// remembered.
    pub holder: Option<(Mode, Arc<Details>)>,
}

/// What happened, in order, until it is durable and taken.
#[derive(Default)]
pub(super) struct Happenings {
    /// An entry leaves when its commit is durable and every entry before it has left.
    queue: VecDeque<(Option<Commit>, Happened)>,
    holders: HashMap<Token, Remembered>,
    order: VecDeque<Token>,
    /// Tokens of grants that are not durable yet, in the order of their commits.
    hidden: VecDeque<(Commit, Token)>,
}

struct Remembered {
    mode: Mode,
    details: Arc<Details>,
    is_revoked: bool,
}

impl Happenings {
    pub(super) fn granted(
        &mut self,
        name: LockName,
        token: Token,
        holder: (Mode, Arc<Details>),
        after: Option<Commit>,
    ) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.holders.remove(&oldest);
        }
        self.order.push_back(token);
        let (mode, details) = holder.clone();
        self.holders.insert(token, Remembered { mode, details, is_revoked: false });
        if let Some(after) = after {
            self.hidden.push_back((after, token));
        }
        let what = Happening::Granted;
        self.queue.push_back((after, Happened { name, token, what, holder: Some(holder) }));
    }

    /// An operator asked the holder to leave: its end counts as revoked, however it comes.
    pub(super) fn asked_to_leave(&mut self, token: Token) {
        if let Some(holder) = self.holders.get_mut(&token) {
            holder.is_revoked = true;
        }
    }

    pub(super) fn ended(&mut self, name: LockName, token: Token, what: Happening, after: Option<Commit>) {
        let holder = self.holders.remove(&token);
        let what = match &holder {
            Some(holder) if holder.is_revoked => Happening::Revoked,
            _ => what,
        };
        let holder = holder.map(|holder| (holder.mode, holder.details));
        self.queue.push_back((after, Happened { name, token, what, holder }));
    }

    /// Commits up to this one are durable.
    pub(super) fn committed(&mut self, commit: Commit) {
        while self.hidden.front().is_some_and(|(after, _)| *after <= commit) {
            self.hidden.pop_front();
        }
        for (after, _) in &mut self.queue {
            if after.is_some_and(|after| after <= commit) {
                *after = None;
            }
        }
    }

    /// The next entry that may be told.
    pub(super) fn pop(&mut self) -> Option<Happened> {
        if self.queue.front()?.0.is_some() {
            return None;
        }
        self.queue.pop_front().map(|(_, happened)| happened)
    }

    /// Whether the grant with this token may be shown.
    pub(super) fn is_shown(&self, token: Token) -> bool {
        // Only what the running commits write is hidden: a few hundred grants at most.
        !self.hidden.iter().any(|(_, hidden)| *hidden == token)
    }
}
