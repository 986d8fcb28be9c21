//! Which claims of this client live in which session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::{Claim, OwnerId};

use crate::session::{Lasting, Means, Seat, Session};

/// All sessions and claims of a client.
pub(crate) struct Sessions {
    means: Means,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The one that all claims with this ttl share.
    shared: HashMap<Duration, Arc<Session>>,
    /// The one of whoever claims nothing.
    visitor: Option<Arc<Session>>,
    /// What ZooKeeper has, or may have, of each claim.
    claims: HashMap<OwnerId, Entry>,
}

/// A claim, as far as this client knows.
struct Entry {
    seat: Seat,
    trace: Trace,
    /// Whether an operator has asked its holder to leave.
    revoked: bool,
}

/// What ZooKeeper may have of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trace {
    /// Nothing was sent.
    None,
    /// It was asked for a node, and has not answered.
    Unknown,
    /// A node of this name.
    Node(String),
}

/// What is left to do about a claim that is withdrawn.
pub(crate) enum Leftover {
    /// Nothing of it was ever sent, or its session is over and with it what it left.
    Nothing,
    /// A node of this name.
    Node(Arc<Session>, String),
    /// Perhaps a node, which comes to be before the next request of this session is served, or never.
    Unknown(Arc<Session>),
}

impl Sessions {
    pub(crate) fn new(means: Means) -> Self {
        Self { means, known: Mutex::default() }
    }

    /// A session for `claim`, and a note that it may leave something. A claim that is asked for again stays in the session it
    /// was in.
    pub(crate) fn settle(&self, claim: &Claim) -> Arc<Session> {
        let mut known = self.known();
        if let Some(Entry { seat, .. }) = known.claims.get(&claim.owner)
            && !seat.session().is_over()
        {
            return seat.session().clone();
        }
        let mut visitor = None;
        let seat = loop {
            let session = match known.shared.get(&claim.ttl) {
                Some(session) if !claim.standalone => session.clone(),
                _ => Session::open(&self.means, Lasting::Exactly(claim.ttl)),
            };
            match session.enter() {
                Some(seat) => {
                    if !claim.standalone {
                        // Those of ttls that nobody takes any more are not kept for ever.
                        known.shared.retain(|_, session| !session.is_over());
                        known.shared.insert(claim.ttl, session);
                        // Whoever looks uses this one, too.
                        visitor = known.visitor.take();
                    }
                    break seat;
                }
                None => {
                    known.shared.remove(&claim.ttl);
                }
            }
        };
        let session = seat.session().clone();
        let before = known.claims.insert(claim.owner, Entry { seat, trace: Trace::None, revoked: false });
        drop(known);
        drop((before, visitor));
        session
    }

    /// A session for whoever claims nothing, for as long as they look.
    pub(crate) fn visitor(&self) -> Seat {
        let mut known = self.known();
        let open = known.shared.values().chain(&known.visitor).find_map(Session::enter);
        open.unwrap_or_else(|| {
            let session = Session::open(&self.means, Lasting::Longest);
            let seat = session.enter_anyway();
            known.visitor = Some(session);
            seat
        })
    }

    /// The node that the claim has.
    pub(crate) fn node(&self, owner: OwnerId) -> Option<String> {
        match &self.known().claims.get(&owner)?.trace {
            Trace::Node(node) => Some(node.clone()),
            Trace::None | Trace::Unknown => None,
        }
    }

    /// Whether it was asked for a node, and was not refused.
    pub(crate) fn has_asked(&self, owner: OwnerId) -> bool {
        self.known().claims.get(&owner).is_some_and(|entry| entry.trace != Trace::None)
    }

    /// A node for the claim is about to be asked for.
    pub(crate) fn asking(&self, owner: OwnerId) {
        self.note(owner, Trace::Unknown);
    }

    /// The claim has this node.
    pub(crate) fn placed(&self, owner: OwnerId, node: &str) {
        self.note(owner, Trace::Node(node.to_owned()));
    }

    /// It was refused a node.
    pub(crate) fn refused(&self, owner: OwnerId) {
        self.note(owner, Trace::None);
    }

    fn note(&self, owner: OwnerId, trace: Trace) {
        if let Some(entry) = self.known().claims.get_mut(&owner) {
            entry.trace = trace;
        }
    }

    /// An operator has asked the claim's holder to leave.
    pub(crate) fn note_revoked(&self, owner: OwnerId) {
        if let Some(entry) = self.known().claims.get_mut(&owner) {
            entry.revoked = true;
        }
    }

    /// Whether an operator has asked the claim's holder to leave.
    pub(crate) fn is_revoked(&self, owner: OwnerId) -> bool {
        self.known().claims.get(&owner).is_some_and(|entry| entry.revoked)
    }

    /// What a withdrawal has to see to.
    pub(crate) fn leftover(&self, owner: OwnerId) -> Leftover {
        match self.known().claims.get(&owner) {
            Some(Entry { seat, .. }) if seat.session().is_over() => Leftover::Nothing,
            Some(Entry { seat, trace: Trace::Node(node), .. }) => {
                Leftover::Node(seat.session().clone(), node.clone())
            }
            Some(Entry { seat, trace: Trace::Unknown, .. }) => Leftover::Unknown(seat.session().clone()),
            None | Some(Entry { trace: Trace::None, .. }) => Leftover::Nothing,
        }
    }

    /// ZooKeeper has nothing of the claim any more.
    pub(crate) fn forget(&self, owner: OwnerId) {
        // The seat is dropped outside the lock.
        let _gone = self.known().claims.remove(&owner);
    }

    /// The session that the claim lives in, if it is known here.
    pub(crate) fn home(&self, owner: OwnerId) -> Option<Arc<Session>> {
        Some(self.known().claims.get(&owner)?.seat.session().clone())
    }

    /// Whether the claim is known to be there.
    pub(crate) fn has(&self, owner: OwnerId) -> bool {
        self.known().claims.contains_key(&owner)
    }

    /// Ends the sessions that nobody uses. The others end with the last claim in them: to close one would give its locks to
    /// others while their holders still believe in them.
    pub(crate) async fn close(&self) {
        let unused: Vec<_> = {
            let mut known = self.known();
            let Known { shared, visitor, .. } = &mut *known;
            let unused = shared.extract_if(|_, session| !session.is_used()).map(|(_, session)| session);
            unused.chain(visitor.take()).collect()
        };
        for session in unused {
            session.close().await;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
