//! Claims under way: each is a task of its own, so that it outlives the call that began it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate_core::{Grant, LockName, Locks, OwnerId};
use tollgate_proto::Problem;

/// For how long a claim keeps its place without a call, at most.
const PLACE: Duration = Duration::from_secs(10);
/// For how long an owner that was withdrawn is refused: a late call may still arrive.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What a claim is known by: its locks, in the order of their names, and its owner id.
pub(super) type Key = (Vec<LockName>, OwnerId);

/// What became of a claim: all of its grants, or why there are none.
pub(super) type Outcome = Result<Vec<Grant>, Problem>;

/// The claims of all clients of this server.
#[derive(Default)]
pub(super) struct Claims {
    open: RefCell<HashMap<Key, Open>>,
    ended: RefCell<VecDeque<(Instant, OwnerId)>>,
}

struct Open {
    outcome: watch::Receiver<Option<Outcome>>,
    task: JoinHandle<()>,
    /// How many calls wait for it, and counts up with every call, so that an old timer is told from
    /// a new one.
    calls: usize,
    turn: u64,
    place: Duration,
}

/// A call that waits for a claim. Dropped, it leaves the claim to its place, or withdraws it.
pub(super) struct Attached {
    claims: Rc<Claims>,
    key: Key,
    locks: Locks,
    outcome: watch::Receiver<Option<Outcome>>,
    can_return: bool,
    is_over: bool,
}

impl Claims {
    /// Whether calls with this owner are refused: its claim was withdrawn a moment ago.
    pub(super) fn has_ended(&self, owner: OwnerId) -> bool {
        let mut ended = self.ended.borrow_mut();
        while ended.front().is_some_and(|(at, _)| at.elapsed() > REMEMBERED) {
            ended.pop_front();
        }
        ended.iter().any(|(_, other)| *other == owner)
    }

    /// Whether a claim waits, or was granted and not fetched.
    pub(super) fn is_open(&self, key: &Key) -> bool {
        self.open.borrow().contains_key(key)
    }

    /// Attaches a call to a claim that is open.
    pub(super) fn attach(self: &Rc<Self>, key: &Key, locks: &Locks, can_return: bool) -> Option<Attached> {
        let mut open = self.open.borrow_mut();
        let claim = open.get_mut(key)?;
        claim.calls += 1;
        claim.turn += 1;
        Some(Attached {
            claims: self.clone(),
            key: key.clone(),
            locks: locks.clone(),
            outcome: claim.outcome.clone(),
            can_return,
            is_over: false,
        })
    }

    /// Begins a claim: `work` takes its locks.
    pub(super) fn begin(&self, key: Key, ttl: Duration, work: impl Future<Output = Outcome> + 'static) {
        let (sender, outcome) = watch::channel(None);
        let task = tokio::task::spawn_local(async move {
            // Nothing listens any more when the claim is withdrawn.
            let _ = sender.send(Some(work.await));
        });
        let claim = Open { outcome, task, calls: 0, turn: 0, place: ttl.min(PLACE) };
        self.open.borrow_mut().insert(key, claim);
    }

    /// Removes a claim, and gives back what it got meanwhile. Its owner is refused from now on.
    pub(super) fn withdraw(&self, key: &Key, locks: &Locks) -> bool {
        self.ended.borrow_mut().push_back((Instant::now(), key.1));
        let Some(claim) = self.open.borrow_mut().remove(key) else { return false };
        // Dropping the task's future withdraws what is under way.
        claim.task.abort();
        let granted = claim.outcome.borrow().clone();
        if let Some(Ok(grants)) = granted {
            let locks = locks.clone();
            tokio::task::spawn_local(async move {
                for grant in grants {
                    // What the engine does not answer ends with its ttl.
                    let _ = locks.release_grant(&grant).await;
                }
            });
            return true;
        }
        false
    }
}

impl Attached {
    /// The outcome, unless `end` comes first.
    pub(super) async fn outcome(&mut self, end: Instant) -> Option<Outcome> {
        tokio::select! {
            biased;
            outcome = self.outcome.wait_for(Option::is_some) => outcome.ok().and_then(|outcome| outcome.clone()),
            () = tokio::time::sleep_until(end) => None,
        }
    }

    /// The outcome is answered by this call.
    pub(super) fn settle(mut self) {
        self.is_over = true;
        self.claims.open.borrow_mut().remove(&self.key);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (place, turn) = {
            let mut open = self.claims.open.borrow_mut();
            let Some(claim) = open.get_mut(&self.key) else { return };
            claim.calls -= 1;
            if claim.calls > 0 {
                return;
            }
            (claim.place, claim.turn)
        };
        if !self.can_return {
            self.claims.withdraw(&self.key, &self.locks);
            return;
        }
        let (claims, key, locks) = (self.claims.clone(), self.key.clone(), self.locks.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(place).await;
            let is_left =
                claims.open.borrow().get(&key).is_some_and(|claim| claim.calls == 0 && claim.turn == turn);
            if is_left {
                claims.withdraw(&key, &locks);
            }
        });
    }
}
