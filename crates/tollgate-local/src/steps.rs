//! The steps of a claim's life that touch files. They run on threads that may block.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tollgate_core::{Attempt, Clock, Contention, Keeper, Token};

use crate::error::{Result, Trouble};
use crate::folder::Folder;
use crate::idle::Idle;
use crate::lost::Looking;
use crate::place::{self, Joined, Kept, Place};
use crate::queue::Verdict;
use crate::registry::{Phase, Registry, Slot};
use crate::waiter::{Finish, Waiters};

/// What takes longer than this on a caller's thread was a stall.
const STALL: Duration = Duration::from_millis(5);
/// How long nothing is done on a caller's thread after a stall.
const STALLED_FOR: Duration = Duration::from_secs(10);

/// What the backend and its threads share.
pub(crate) struct Shared {
    pub(crate) folder: Folder,
    pub(crate) registry: Registry,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) idle: Idle,
    pub(crate) looking: Looking,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keeper: Keeper,
    /// Until when nothing is done on a caller's thread, in nanoseconds of the clock.
    pub(crate) stalls_until: AtomicU64,
    /// The process that opened it. A child that was forked has none of its threads, and shares its files.
    pub(crate) process: u32,
    /// For the threads and tasks that it starts itself.
    pub(crate) this: Weak<Shared>,
}

impl Shared {
    /// Takes the lock on the caller's thread, if that touches nothing but a file that is open and pages that are
    /// cached. Says whether the claim has its answer, and otherwise gives back what it found.
    ///
    /// A file system can stall even then, and the caller's executor with it: once that was seen, threads do it for
    /// a while.
    pub(crate) fn take_at_once(&self, slot: &Arc<Slot>) -> Result<(), Option<Kept>> {
        let kept = self.idle.reuse(&slot.claim.name).ok_or(None)?;
        let started = self.clock.now();
        if started.as_nanos() < self.stalls_until.load(Ordering::Relaxed) {
            return Err(Some(kept));
        }
        if !slot.begin() {
            return Ok(());
        }
        let joined = place::join_at_once(&self.folder, kept, &slot.claim);
        if self.clock.now().since(started) > STALL {
            self.stalls_until.store((started + STALLED_FOR).as_nanos(), Ordering::Relaxed);
        }
        match joined {
            Ok(Ok((place, token))) => self.settle(slot, Arc::new(place), Ok(token)),
            Ok(Err(kept)) => {
                slot.put_back();
                return Err(Some(kept));
            }
            Err(trouble) => {
                self.end(slot);
                slot.answer(Err(trouble.into()));
            }
        }
        Ok(())
    }

    /// Takes the claim a place, and the lock if nobody is in the way.
    pub(crate) fn take(&self, slot: &Arc<Slot>, kept: Option<Kept>, wait: bool) {
        if !slot.begin() {
            return;
        }
        match place::join(&self.folder, kept, &slot.claim, wait) {
            Ok(Joined::Alone(place, reserved)) => self.settle(slot, Arc::new(place), reserved.draw()),
            Ok(Joined::Place(place, Verdict::Go)) => self.finish(slot, &Arc::new(place), Ok(())),
            Ok(Joined::Place(place, verdict)) => self.line_up(slot, &Arc::new(place), verdict),
            Ok(Joined::Busy) => {
                self.end(slot);
                slot.answer(Ok(Attempt::Busy(Contention::default())));
            }
            Err(trouble) => {
                self.end(slot);
                slot.answer(Err(trouble.into()));
            }
        }
    }

    /// Goes on with a place that another process took and `lock` holds; `false` if it holds none.
    pub(crate) fn inherit(&self, slot: &Arc<Slot>, token: Token, lock: OwnedFd) -> Result<bool> {
        if !slot.begin() {
            return Ok(false);
        }
        match place::inherit(&self.folder, &slot.claim, token, lock) {
            Ok(Some(place)) => {
                let place = Arc::new(place);
                let held = slot.hold(&place, token);
                if !held {
                    self.leave(slot, &place);
                }
                Ok(held)
            }
            nothing => {
                self.end(slot);
                nothing.map(|_| false)
            }
        }
    }

    fn line_up(&self, slot: &Arc<Slot>, place: &Arc<Place>, verdict: Verdict) {
        let Some(this) = self.this.upgrade() else { return place.leave() };
        slot.note_wait();
        let finish: Arc<Finish> = Arc::new(move |slot, place, outcome| this.finish(slot, place, outcome));
        let lined_up = {
            let mut state = slot.lock();
            // Whoever withdraws looks for the claim in the line once it is `Waiting`, and not before.
            if state.withdrawn {
                Ok(false)
            } else {
                let inserted = self.waiters.insert(slot, place, verdict, &finish);
                state.phase = Phase::Waiting(place.clone());
                inserted.map(|()| true)
            }
        };
        match lined_up {
            Ok(true) => self.waiters.hurry(place),
            Ok(false) => self.leave(slot, place),
            Err(trouble) => {
                slot.enter_phase(Phase::Working);
                self.leave(slot, place);
                slot.answer(Err(trouble.into()));
            }
        }
    }

    /// Grants the claim, or ends it if waiting failed. Nobody else works on it.
    fn finish(&self, slot: &Arc<Slot>, place: &Arc<Place>, outcome: Result<()>) {
        let granted = outcome.and_then(|()| {
            // Nobody ahead is in the way any more, and nobody comes in ahead: the token is drawn outside
            // the gate, and yet every later grant draws later.
            let token = self.folder.counters()?.draw(place.shard())?;
            place.grant(token)?;
            Ok::<_, Trouble>(token)
        });
        self.settle(slot, place.clone(), granted);
    }

    /// Tells the claim that it holds its lock, or ends it. Nobody else works on it.
    fn settle(&self, slot: &Arc<Slot>, place: Arc<Place>, granted: Result<Token>) {
        match granted {
            Ok(token) if slot.hold(&place, token) => {
                // First: whoever releases at once finds that nobody else has the file, and keeps it open.
                drop(place);
                slot.answer(Ok(Attempt::Granted(slot.grant(token))));
            }
            Ok(_) => self.leave(slot, &place),
            Err(trouble) => {
                self.leave(slot, &place);
                slot.answer(Err(trouble.into()));
            }
        }
    }

    /// Makes sure that nothing of the claim is left, whatever thread works on it.
    pub(crate) fn withdraw(&self, slot: &Arc<Slot>) {
        let mut state = slot.lock();
        state.withdrawn = true;
        loop {
            match state.phase.clone() {
                Phase::Gone => return,
                Phase::New => {
                    drop(state);
                    return self.end(slot);
                }
                Phase::Held(place, _) => {
                    state.phase = Phase::Working;
                    drop(state);
                    return self.leave(slot, &place);
                }
                Phase::Waiting(place) => {
                    drop(state);
                    if self.waiters.remove(&place) {
                        slot.enter_phase(Phase::Working);
                        return self.leave(slot, &place);
                    }
                    state = slot.lock();
                    if matches!(state.phase, Phase::Waiting(_)) {
                        state = slot.wait(state);
                    }
                }
                Phase::Working => state = slot.wait(state),
            }
        }
    }

    /// Leaves the queue or gives the lock back, and forgets the claim.
    pub(crate) fn leave(&self, slot: &Slot, place: &Place) {
        place.leave();
        self.end(slot);
    }

    /// Gives the lock back if that needs no file work, because nobody else wants it; says whether it did.
    pub(crate) fn leave_at_once(&self, slot: &Slot, place: Arc<Place>) -> Result<(), Arc<Place>> {
        if !place.leave_at_once() {
            return Err(place);
        }
        if let Some(kept) = Arc::into_inner(place).and_then(Place::into_kept) {
            self.idle.keep(&slot.claim.name, kept);
        }
        self.end(slot);
        Ok(())
    }

    /// Forgets a claim that has nothing in the folder any more, except perhaps an idle file.
    pub(crate) fn end(&self, slot: &Slot) {
        self.registry.end(slot);
        self.idle.note(self, &slot.claim.name);
    }

    /// Gives up every claim that is not granted: nobody will ask for them any more.
    pub(crate) fn abandon_waiters(&self) {
        for slot in self.registry.all() {
            let held = matches!(slot.lock().phase, Phase::Held(..));
            if !held {
                self.withdraw(&slot);
            }
        }
    }
}
