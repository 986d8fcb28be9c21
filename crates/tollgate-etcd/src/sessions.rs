//! Which claims of this client live in which session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::{Claim, Moment, OwnerId};

use crate::copies::{Copies, Ended};
use crate::session::{Means, Seat, Session};

/// All sessions and claims of a client.
pub(crate) struct Sessions {
    means: Means,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The one that all claims with this ttl share.
    shared: HashMap<Duration, Arc<Session>>,
    /// What etcd has, or may have, of each claim.
    claims: HashMap<OwnerId, Entry>,
    /// With how many claims those are forgotten that have ended by themselves.
    crowded: usize,
}

/// From how many claims on it is worth looking for those that have ended by themselves.
const CROWDED: usize = 256;
/// For how long an answer is expected to an acquire that was withdrawn; much longer than any request waits for one.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// A claim, as far as this client knows.
struct Entry {
    home: Home,
    /// The lease its key hangs on.
    lease: Option<i64>,
    /// Its number in that lease.
    slot: u32,
    /// How many requests were sent that delete its key.
    deletions: u32,
    /// Whether its key may still come to be after we looked.
    copies: Copies,
    /// Whether it was withdrawn while it might: then etcd has keys that say so.
    withdrawn: bool,
    /// Whether an operator has asked its holder to leave.
    revoked: bool,
}

/// What keeps a claim alive.
enum Home {
    /// A session.
    Session(Seat),
    /// Nobody: a lease of its own, which ends by then.
    Nobody(Moment),
}

/// What is left to do about a claim that is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Nothing of it was ever sent.
    Nothing,
    /// Its key may be there, and comes no more if it is not.
    Key(Spot),
    /// Its key may come to be at any time while this lease lives, by so many copies of its acquire.
    Late(Spot, u32),
}

/// Where the key of a claim is: the lease it hangs on, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) lease: i64,
    pub(crate) slot: u32,
}

/// Whose a key is that is about to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// This claim's and nobody else's.
    Own,
    /// Perhaps another claim's: this one is not in our books.
    Unknown,
}

impl Sessions {
    pub(crate) fn new(means: Means) -> Self {
        Self { means, known: Mutex::default() }
    }

    /// A session for `claim`, its number there, and a note that it may have left something. A claim that is asked for again
    /// stays in the session it was in.
    pub(crate) fn settle(&self, claim: &Claim) -> (Arc<Session>, u32) {
        let mut known = self.known();
        if let Some(Entry { home: Home::Session(seat), .. }) = known.claims.get(&claim.owner)
            && !seat.session().is_over()
        {
            return (seat.session().clone(), seat.slot());
        }
        let seat = loop {
            let session = match known.shared.get(&claim.ttl) {
                Some(session) if !claim.standalone => session.clone(),
                _ => Session::open(&self.means, claim.ttl),
            };
            let entered = session.enter(&claim.name);
            match entered {
                Some(seat) => {
                    if !claim.standalone {
                        known.shared.insert(claim.ttl, session);
                    }
                    break seat;
                }
                None => {
                    known.shared.remove(&claim.ttl);
                }
            }
        };
        let (session, slot) = (seat.session().clone(), seat.slot());
        let now = self.means.clock.now();
        if known.claims.len() >= known.crowded.max(CROWDED) {
            known.claims.retain(|_, entry| !matches!(entry.home, Home::Nobody(end) if end <= now));
            known.crowded = known.claims.len() * 2;
        }
        known.claims.insert(
            claim.owner,
            Entry {
                home: Home::Session(seat),
                lease: None,
                slot,
                deletions: 0,
                copies: Copies::default(),
                withdrawn: false,
                revoked: false,
            },
        );
        (session, slot)
    }

    /// Where a standalone claim is that nobody keeps alive, and until when it counts.
    pub(crate) fn own_lease(&self, owner: OwnerId) -> Option<(Spot, Moment)> {
        match self.known().claims.get(&owner)? {
            Entry { home: Home::Nobody(end), lease: Some(lease), slot, withdrawn: false, .. } => {
                Some((Spot { lease: *lease, slot: *slot }, *end))
            }
            _ => None,
        }
    }

    /// An acquire of the claim is about to be sent; answers which copy that is.
    pub(crate) fn asking(&self, owner: OwnerId, lease: i64) -> u32 {
        match self.known().claims.get_mut(&owner) {
            Some(entry) => {
                entry.lease = Some(lease);
                entry.copies.send()
            }
            None => 1,
        }
    }

    /// Whether another copy may be sent.
    pub(crate) fn may_ask_again(&self, owner: OwnerId) -> bool {
        self.known().claims.get(&owner).is_some_and(|entry| !entry.withdrawn && entry.copies.may_send())
    }

    /// The copy that was sent is over. Answers whether the claim was withdrawn meanwhile, and this copy need not be kept out.
    pub(crate) fn answered(&self, owner: OwnerId, ended: Ended) -> bool {
        let mut known = self.known();
        let Some(entry) = known.claims.get_mut(&owner) else { return false };
        entry.copies.end(ended);
        let withdrawn = entry.withdrawn;
        let _gone = withdrawn.then(|| known.claims.remove(&owner));
        withdrawn && ended != Ended::InDoubt
    }

    /// etcd has keys that keep late copies out. Answers whether the last of them is not needed any more.
    pub(crate) fn withdrawn(&self, owner: OwnerId) -> bool {
        let mut known = self.known();
        match known.claims.get_mut(&owner) {
            Some(entry) if entry.copies.may_come() => {
                entry.withdrawn = true;
                // It needs the session no longer: with the lease ends what it left, and what may still come.
                entry.home = Home::Nobody(self.means.clock.now() + ANSWERED_WITHIN);
                false
            }
            _ => {
                let _gone = known.claims.remove(&owner);
                true
            }
        }
    }

    /// A standalone claim was granted: from here on nobody keeps it alive.
    pub(crate) fn abandon(&self, owner: OwnerId, end: Moment) {
        let mut known = self.known();
        let before =
            known.claims.get_mut(&owner).map(|entry| std::mem::replace(&mut entry.home, Home::Nobody(end)));
        drop(known);
        drop(before);
    }

    /// What a withdrawal has to see to.
    pub(crate) fn leftover(&self, owner: OwnerId) -> Leftover {
        match self.known().claims.get(&owner) {
            None | Some(Entry { lease: None, .. }) => Leftover::Nothing,
            Some(Entry { lease: Some(lease), slot, copies, .. }) => {
                let spot = Spot { lease: *lease, slot: *slot };
                if copies.may_come() { Leftover::Late(spot, copies.last()) } else { Leftover::Key(spot) }
            }
        }
    }

    /// A request is about to be sent that deletes the claim's key.
    pub(crate) fn deleting(&self, owner: OwnerId) -> Deletion {
        match self.known().claims.get_mut(&owner) {
            Some(entry) => {
                entry.deletions += 1;
                Deletion::Own
            }
            None => Deletion::Unknown,
        }
    }

    /// etcd has nothing of the claim any more.
    pub(crate) fn forget(&self, owner: OwnerId) {
        // The seat is dropped outside the lock.
        let _gone = self.known().claims.remove(&owner);
    }

    /// etcd has nothing of the claim any more, and what was sent is answered: another may have its key, unless something else was
    /// sent.
    pub(crate) fn forget_clean(&self, owner: OwnerId) {
        let gone = self.known().claims.remove(&owner);
        if let Some(Entry { home: Home::Session(seat), copies, deletions: 0 | 1, .. }) = gone
            && !copies.may_come()
        {
            seat.leave_clean();
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

    /// Whether the claim is in a session that is over.
    pub(crate) fn is_over_for(&self, owner: OwnerId) -> bool {
        matches!(
            self.known().claims.get(&owner),
            Some(Entry { home: Home::Session(seat), .. }) if seat.session().is_over()
        )
    }

    /// Whether the claim is known to be there.
    pub(crate) fn has(&self, owner: OwnerId) -> bool {
        self.known().claims.contains_key(&owner)
    }

    /// The shared session with this lease, if it is open.
    pub(crate) fn with_lease(&self, ttl: Duration, lease: i64) -> Option<Arc<Session>> {
        self.known().shared.get(&ttl).filter(|session| session.is(lease)).cloned()
    }

    /// Lets go of all sessions: those that nobody uses are ended, the others end after their ttl.
    pub(crate) async fn close(&self) {
        let Known { shared, claims, .. } = std::mem::take(&mut *self.known());
        for session in shared.into_values().filter(|session| !session.is_used()) {
            session.revoke().await;
        }
        drop(claims);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
