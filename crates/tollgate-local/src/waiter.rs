//! Those who wait: one thread per lock blocks in the kernel for the first waiting claim of this backend.
//!
//! A later claim of the same queue is never granted before an earlier one, so one thread is enough. It is
//! interrupted by a signal when its claim is withdrawn, and ends when nobody waits any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::LockName;

use crate::error::{Result, Trouble};
use crate::layout::{self, Ticket};
use crate::place::Place;
use crate::queue::Verdict;
use crate::registry::Slot;
use crate::sys::{Interruptible, Range};

/// How soon a signal is repeated that came just before the call it was to interrupt.
const REPEAT: Duration = Duration::from_millis(1);
/// How soon the first permit that waits asks again for the first time, and at most.
const ASK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// A waiting thread calls nothing deep.
const STACK: usize = 256 * 1024;

/// What a line does with a claim that nobody ahead is in the way of, or whose waiting failed.
pub(crate) type Finish = dyn Fn(&Arc<Slot>, &Arc<Place>, Result<()>) + Send + Sync;

/// The lines of all locks that somebody here waits for.
#[derive(Default)]
pub(crate) struct Waiters {
    lines: Mutex<HashMap<LockName, Arc<Line>>>,
}

/// The claims of this backend that wait for one lock.
struct Line {
    name: LockName,
    state: Mutex<LineState>,
    changed: Condvar,
}

#[derive(Default)]
struct LineState {
    waiting: BTreeMap<Ticket, Waiting>,
    /// The claim the thread works on. It is the first, except for a moment after an earlier one came.
    current: Option<Ticket>,
    /// Set while the thread lives and can be interrupted.
    thread: Option<Interruptible>,
}

#[derive(Clone)]
struct Waiting {
    slot: Arc<Slot>,
    place: Arc<Place>,
    /// What the claim knew when it came, so that the thread need not look again at once.
    verdict: Option<Verdict>,
}

impl Waiters {
    /// Puts a claim into its lock's line. `finish` is called on the line's thread.
    pub(crate) fn insert(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        place: &Arc<Place>,
        verdict: Verdict,
        finish: &Arc<Finish>,
    ) -> Result<()> {
        let waiting = Waiting { slot: slot.clone(), place: place.clone(), verdict: Some(verdict) };
        let mut lines = self.lines();
        if let Some(line) = lines.get(place.name()) {
            line.lock().waiting.insert(place.ticket(), waiting);
            return Ok(());
        }
        let line = Arc::new(Line {
            name: place.name().clone(),
            state: Mutex::new(LineState::default()),
            changed: Condvar::new(),
        });
        line.lock().waiting.insert(place.ticket(), waiting);
        let (waiters, finish, thread) = (self.clone(), finish.clone(), line.clone());
        std::thread::Builder::new()
            .name("tollgate-wait".to_owned())
            .stack_size(STACK)
            .spawn(move || waiters.run(&thread, &*finish))
            .map_err(|error| {
                Trouble::Threads(format!(
                    "the thread that waits for the lock cannot be started: {error}; is the limit on \
                     threads reached?"
                ))
            })?;
        lines.insert(place.name().clone(), line);
        Ok(())
    }

    /// Makes the thread turn to `place` if it is busy with a later claim of the line.
    pub(crate) fn hurry(&self, place: &Place) {
        let Some(line) = self.lines().get(place.name()).cloned() else { return };
        let later = |state: &LineState| state.current.is_some_and(|current| current > place.ticket());
        line.interrupt_while(line.lock(), |state| {
            later(state) && state.waiting.contains_key(&place.ticket())
        });
    }

    /// Takes a claim out of its line, and makes sure that no thread works on it. `false` if it was not
    /// there: the thread is done with it, or about to be.
    pub(crate) fn remove(&self, place: &Place) -> bool {
        let Some(line) = self.lines().get(place.name()).cloned() else { return false };
        let mut state = line.lock();
        if state.waiting.remove(&place.ticket()).is_none() {
            return false;
        }
        line.interrupt_while(state, |state| state.current == Some(place.ticket()));
        true
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, line: &Arc<Line>, finish: &Finish) {
        let _end = End { waiters: self, line };
        let interruptible = Interruptible::this_thread();
        line.lock().thread = interruptible.as_ref().ok().copied();
        let trouble = interruptible.err();
        while let Some((ticket, waiting)) = self.next(line) {
            let outcome = match &trouble {
                Some(error) => {
                    Err(Trouble::Threads(format!("the waiting thread cannot be interrupted: {error}")))
                }
                None => line.advance(ticket, &waiting),
            };
            let outcome = match outcome {
                Ok(false) => continue,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            // Whoever takes the claim out of the line finishes it: here, or the one who withdraws it.
            if line.lock().waiting.remove(&ticket).is_some() {
                finish(&waiting.slot, &waiting.place, outcome);
            }
        }
    }

    /// The first claim of the line; `None` ends the thread.
    fn next(&self, line: &Line) -> Option<(Ticket, Waiting)> {
        let mut lines = None;
        loop {
            let mut state = line.lock();
            state.current = state.waiting.first_key_value().map(|(ticket, _)| *ticket);
            line.changed.notify_all();
            if let Some(mut first) = state.waiting.first_entry() {
                // What was known is worth one wait; after that one has to look.
                let verdict = first.get_mut().verdict.take();
                return Some((*first.key(), Waiting { verdict, ..first.get().clone() }));
            }
            // The map is locked before a line everywhere, so an empty line is looked at twice.
            match lines.take() {
                None => {
                    drop(state);
                    lines = Some(self.lines());
                }
                Some(mut lines) => {
                    state.thread = None;
                    lines.remove(&line.name);
                    return None;
                }
            }
        }
    }
}

/// Closes a line whose thread panics: nobody may signal a thread that is no more, or wait for it.
struct End<'a> {
    waiters: &'a Waiters,
    line: &'a Arc<Line>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut lines = self.waiters.lines();
        let mut state = self.line.lock();
        (state.thread, state.current) = (None, None);
        state.waiting.clear();
        lines.retain(|_, line| !Arc::ptr_eq(line, self.line));
        self.line.changed.notify_all();
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One wait for the claim with `ticket`; `true` when nobody is in its way any more.
    fn advance(&self, ticket: Ticket, waiting: &Waiting) -> Result<bool> {
        let place = &waiting.place;
        let verdict = match &waiting.verdict {
            Some(verdict) => verdict.clone(),
            None => place.look()?,
        };
        match verdict {
            Verdict::Go => return Ok(true),
            Verdict::AfterLeaving(other) => self.block(ticket, place, layout::alive(other))?,
            Verdict::AfterWaiting(other) => self.block(ticket, place, layout::waiting(other))?,
            Verdict::AfterAny(others) => self.ask(ticket, place, &others)?,
        }
        Ok(false)
    }

    fn block(&self, ticket: Ticket, place: &Place, range: Range) -> Result<()> {
        // A signal that comes between this check and the kernel is repeated.
        if self.lock().is_first(ticket) {
            place.wait(range)?;
        }
        Ok(())
    }

    fn ask(&self, ticket: Ticket, place: &Place, others: &[Ticket]) -> Result<()> {
        let (mut pause, longest) = ASK;
        let mut state = self.lock();
        while state.is_first(ticket) {
            drop(state);
            if place.is_any_gone(others)? {
                return Ok(());
            }
            state = self.lock();
            if state.is_first(ticket) {
                state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
            pause = (pause * 2).min(longest);
        }
        Ok(())
    }

    /// Interrupts the thread again and again until `condition` no longer holds.
    fn interrupt_while(&self, mut state: MutexGuard<'_, LineState>, condition: impl Fn(&LineState) -> bool) {
        self.changed.notify_all();
        while condition(&state) {
            if let Some(thread) = state.thread {
                thread.wake();
            }
            state = self.changed.wait_timeout(state, REPEAT).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl LineState {
    fn is_first(&self, ticket: Ticket) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }
}
