//! What the test has set, and what the connections obey.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::rule::{Caught, Deed, Rule, Trap, Which};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the engine.
    Requests,
    /// From the engine to clients.
    Replies,
}

/// What becomes of bytes that come into a black hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They are delivered after the heal, late and in order, also if their sender has hung up by then.
    Late,
    /// They are lost. A connection that lost bytes can make no sense any more: the heal cuts it.
    Lost,
}

/// Which pushes are kept from clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// All of them pass.
    None,
    /// The next so many.
    Next(usize),
    /// All.
    All,
}

/// Whether bytes get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    Hole(Fate),
}

/// One way.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) flow: Flow,
    pub(super) delay: Duration,
}

const CLEAR: Way = Way { flow: Flow::Open, delay: Duration::ZERO };

struct Set {
    requests: Way,
    replies: Way,
    discard: Discard,
    rules: Vec<Rule>,
    traps: Vec<Weak<Trap>>,
}

/// Everything that can be set. Connections read it before every step and are woken by every change.
pub(super) struct Switches {
    set: Mutex<Set>,
    changes: watch::Sender<()>,
}

impl Switches {
    pub(super) fn new() -> Arc<Self> {
        let set = Set {
            requests: CLEAR,
            replies: CLEAR,
            discard: Discard::None,
            rules: Vec::new(),
            traps: Vec::new(),
        };
        Arc::new(Self { set: Mutex::new(set), changes: watch::Sender::new(()) })
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes every connection.
    pub(super) fn changed(&self) {
        self.changes.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(super) fn way(&self, direction: Direction) -> Way {
        let set = self.set();
        match direction {
            Direction::Requests => set.requests,
            Direction::Replies => set.replies,
        }
    }

    pub(super) fn change_way(&self, direction: Direction, change: impl FnOnce(&mut Way)) {
        let mut set = self.set();
        change(match direction {
            Direction::Requests => &mut set.requests,
            Direction::Replies => &mut set.replies,
        });
        drop(set);
        self.changed();
    }

    pub(super) fn discard(&self, discard: Discard) {
        self.set().discard = discard;
    }

    /// Whether the push that has just come is kept from its client.
    pub(super) fn discards_push(&self) -> bool {
        let mut set = self.set();
        match &mut set.discard {
            Discard::None | Discard::Next(0) => false,
            Discard::All => true,
            Discard::Next(left) => {
                *left -= 1;
                true
            }
        }
    }

    pub(super) fn add_rule(self: &Arc<Self>, which: Which, deed: Deed) -> Caught {
        let trap = Trap::new();
        let mut set = self.set();
        set.traps.retain(|trap| trap.strong_count() > 0);
        set.traps.push(Arc::downgrade(&trap));
        set.rules.push(Rule { which, deed, trap: trap.clone() });
        Caught::new(trap, self.clone())
    }

    /// What is done to this request. A rule that has caught its request is used up; of several rules for one
    /// request the oldest decides, and the others have seen it pass.
    pub(super) fn judge(&self, frame: &[u8]) -> Option<(Deed, Arc<Trap>)> {
        let mut set = self.set();
        let mut caught = None;
        set.rules.retain_mut(|rule| {
            if !rule.which.is_meant(frame) || caught.is_some() {
                return true;
            }
            rule.trap.has_caught();
            caught = Some((rule.deed, rule.trap.clone()));
            false
        });
        caught
    }

    /// No more trouble: everything flows, no rule waits, and what was held goes on.
    pub(super) fn heal(&self) {
        let mut set = self.set();
        (set.requests, set.replies, set.discard) = (CLEAR, CLEAR, Discard::None);
        set.rules.clear();
        for trap in set.traps.drain(..) {
            if let Some(trap) = trap.upgrade() {
                trap.let_go();
            }
        }
        drop(set);
        self.changed();
    }
}
