//! What became of every claim this backend has seen and not finished with.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};
use tollgate_core::{Attempt, Claim, Deadline, Error, Grant, LossCause, OwnerId, Result, Token};

use crate::place::Place;

/// Every claim that is being taken, waits or holds. A claim that is not here has nothing in the folder.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    slots: Mutex<HashMap<OwnerId, Arc<Slot>>>,
}

/// One claim and where it stands.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) claim: Claim,
    state: Mutex<State>,
    changed: Condvar,
    /// Why the grant was lost, once that was noticed.
    pub(crate) lost: watch::Sender<Option<LossCause>>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// Somebody wants the claim gone; whoever works on it finishes by leaving.
    pub(crate) withdrawn: bool,
    /// How many threads wait for the next phase: telling nobody is a system call, too.
    watchers: usize,
    /// Who waits for the outcome.
    reply: Option<oneshot::Sender<Result<Attempt>>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Phase {
    /// No thread has begun to work on it.
    New,
    /// A thread takes it a place, or makes it leave.
    Working,
    /// It stands in the line of its lock's waiting thread.
    Waiting(Arc<Place>),
    /// It was granted.
    Held(Arc<Place>, Token),
    /// Nothing is left of it.
    Gone,
}

impl Registry {
    /// Enters a claim and says where its outcome will arrive.
    pub(crate) fn enter(&self, claim: &Claim) -> Result<(Arc<Slot>, oneshot::Receiver<Result<Attempt>>)> {
        let (reply, outcome) = oneshot::channel();
        let state = State { phase: Phase::New, withdrawn: false, watchers: 0, reply: Some(reply) };
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.contains_key(&claim.owner) {
            return Err(Error::invalid(
                "this claim is already being taken; make a new claim for another attempt",
            ));
        }
        let slot = Arc::new(Slot {
            claim: claim.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            lost: watch::Sender::new(None),
        });
        slots.insert(claim.owner, slot.clone());
        Ok((slot, outcome))
    }

    pub(crate) fn find(&self, owner: OwnerId) -> Option<Arc<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).get(&owner).cloned()
    }

    /// The slot in which `grant` is held, and its place.
    pub(crate) fn held(&self, grant: &Grant) -> Option<(Arc<Slot>, Arc<Place>)> {
        let slot = self.find(grant.owner)?;
        let place = slot.lock().holds(grant, &slot.claim)?;
        Some((slot, place))
    }

    /// Every claim, as it stands now.
    pub(crate) fn all(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Ends a claim: nothing is left of it in the folder.
    pub(crate) fn end(&self, slot: &Slot) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot.claim.owner);
        slot.enter_phase(Phase::Gone);
    }
}

impl State {
    /// The place of `grant`, if this is the claim that holds it.
    pub(crate) fn holds(&self, grant: &Grant, claim: &Claim) -> Option<Arc<Place>> {
        match &self.phase {
            Phase::Held(place, token) if *token == grant.token && claim.name == grant.name => {
                Some(place.clone())
            }
            _ => None,
        }
    }
}

impl Slot {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the phase changes.
    pub(crate) fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.watchers += 1;
        state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.watchers -= 1;
        state
    }

    pub(crate) fn enter_phase(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        if state.watchers > 0 {
            self.changed.notify_all();
        }
    }

    /// Begins to work on the claim; `false` if it was withdrawn before.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.lock();
        let begins = matches!(state.phase, Phase::New);
        if begins {
            state.phase = Phase::Working;
        }
        begins
    }

    /// Leaves a claim that was [begun](Self::begin) to whoever begins it next.
    pub(crate) fn put_back(&self) {
        self.enter_phase(Phase::New);
    }

    /// Enters that the claim holds its lock; `false` if it was withdrawn meanwhile and has to leave.
    pub(crate) fn hold(&self, place: &Arc<Place>, token: Token) -> bool {
        let mut state = self.lock();
        if state.withdrawn {
            return false;
        }
        // Nobody watches for this: whoever does wants the claim gone, and has said so.
        state.phase = Phase::Held(place.clone(), token);
        true
    }

    /// Tells whoever waits for it how the claim fared. A caller who has gone is told nothing: the core
    /// withdraws what it dropped.
    pub(crate) fn answer(&self, outcome: Result<Attempt>) {
        let reply = self.lock().reply.take();
        if let Some(reply) = reply {
            let _ = reply.send(outcome);
        }
    }

    /// Notes that somebody is in the way.
    pub(crate) fn note_wait(&self) {
        self.claim.wait_status.set_queued();
    }

    /// The grant of this claim.
    pub(crate) fn grant(&self, token: Token) -> Grant {
        let grant = Grant::new(&self.claim, token, Deadline::Never);
        Grant { waited: self.claim.wait_status.is_queued(), ..grant }
    }
}
