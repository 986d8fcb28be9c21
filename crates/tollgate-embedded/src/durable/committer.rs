//! The thread that writes batches to the disk, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde::Serialize;

use super::batch::{Batch, Commit};
use super::store::{Store, StoreError};

/// How long after a commit found the disk full it is repeated.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Commits batches on a thread of its own.
pub struct Committer<D> {
    batches: Option<Sender<Arc<Batch<D>>>>,
    thread: Option<JoinHandle<()>>,
    /// Whether a commit is not to be repeated any more.
    is_over: Arc<AtomicBool>,
}

impl<D: Serialize + Send + Sync + 'static> Committer<D> {
    /// Starts the thread. `done` is called on it after each commit. A commit for which the disk has
    /// no room is repeated until there is room; after any other error nothing is written any more.
    pub fn start(
        mut store: impl Store,
        mut done: impl FnMut(Result<Commit, StoreError>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, batches) = channel::<Arc<Batch<D>>>();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = Builder::new().name("tollgate-commit".to_owned()).spawn(move || {
            for batch in batches {
                let writes = batch.writes();
                loop {
                    let committed = store.commit(&writes).map(|()| batch.commit);
                    let is_full = matches!(committed, Err(StoreError::Full { .. }));
                    let has_failed = committed.is_err() && !is_full;
                    done(committed);
                    if has_failed || (is_full && over.load(Ordering::Relaxed)) {
                        return;
                    }
                    if !is_full {
                        break;
                    }
                    std::thread::sleep(TRY_AGAIN);
                }
            }
        })?;
        Ok(Self { batches: Some(sender), thread: Some(thread), is_over })
    }

    /// Has `batch` written. Answers whether the thread still writes: after a failed commit it does not.
    pub fn commit(&self, batch: Arc<Batch<D>>) -> bool {
        self.batches.as_ref().is_some_and(|batches| batches.send(batch).is_ok())
    }
}

/// Waits until everything is written, as far as the disk has room.
impl<D> Drop for Committer<D> {
    fn drop(&mut self) {
        self.batches = None;
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
