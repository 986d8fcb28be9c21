//! Clearing away the files of locks that nobody uses, a while after the last one left.
//!
//! Not at once: making and removing a file costs half as much as a grant, and most locks are taken again.
//! The files of a few of them stay open, too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::{LockName, Moment};

use crate::place::Kept;
use crate::steps::Shared;
use crate::view;

/// How long a file stays after its last use here.
const LINGER: Duration = Duration::from_secs(1);

/// How many files stay open at most: descriptors are scarce.
const OPEN: usize = 32;

/// Locks that were left lately.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    names: HashMap<LockName, Moment>,
    open: HashMap<LockName, Kept>,
    /// A task on the keeper clears away what is due.
    task: bool,
}

impl Idle {
    /// Notes that a claim on `name` is gone.
    pub(crate) fn note(&self, shared: &Shared, name: &LockName) {
        let mut left = self.lock();
        left.names.insert(name.clone(), shared.clock.now());
        if std::mem::replace(&mut left.task, true) {
            return;
        }
        let (weak, clock) = (shared.this.clone(), shared.clock.clone());
        let keeper = shared.keeper.clone();
        shared.keeper.spawn(async move {
            loop {
                clock.sleep_until(clock.now() + LINGER).await;
                let Some(shared) = weak.upgrade() else { return };
                let before = clock.now() - LINGER;
                let cleared = keeper.spawn_blocking(move || shared.idle.clear(&shared, Some(before))).await;
                if !cleared.unwrap_or(false) {
                    return;
                }
            }
        });
    }

    /// Keeps the file of a claim that has left, for the next one.
    pub(crate) fn keep(&self, name: &LockName, kept: Kept) {
        let mut left = self.lock();
        if left.open.len() < OPEN {
            left.open.insert(name.clone(), kept);
        }
    }

    /// A file that was kept.
    pub(crate) fn reuse(&self, name: &LockName) -> Option<Kept> {
        self.lock().open.remove(name)
    }

    /// Clears away what was left until `before`, or everything; says whether something remains.
    pub(crate) fn clear(&self, shared: &Shared, before: Option<Moment>) -> bool {
        let due: Vec<_> = {
            let mut left = self.lock();
            let due = |_: &LockName, at: &mut Moment| before.is_none_or(|before| *at <= before);
            let due: Vec<_> = left.names.extract_if(due).map(|(name, _)| name).collect();
            for name in &due {
                left.open.remove(name);
            }
            due
        };
        for name in due {
            // Best effort: whoever uses the lock next, or lists locks, comes by here again.
            if let Ok(Some(file)) = shared.folder.file_if_made(&name) {
                let _ = view::clear_away(&file);
            }
        }
        let mut left = self.lock();
        left.task &= before.is_none() || !left.names.is_empty();
        left.task
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
