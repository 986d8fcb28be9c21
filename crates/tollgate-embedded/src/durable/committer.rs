//! The thread that writes batches to the disk, one after the other.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use serde::Serialize;

use super::batch::{Batch, Commit};
use super::store::{Store, StoreError};

/// Commits batches on a thread of its own.
pub struct Committer<D> {
    batches: Option<Sender<Arc<Batch<D>>>>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Serialize + Send + Sync + 'static> Committer<D> {
    /// Starts the thread. `done` is called on it after each batch; after an error nothing is written any more.
    pub fn start(
        mut store: impl Store,
        mut done: impl FnMut(Result<Commit, StoreError>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, batches) = channel::<Arc<Batch<D>>>();
        let thread = Builder::new().name("tollgate-commit".to_owned()).spawn(move || {
            for batch in batches {
                let committed = store.commit(&batch.writes()).map(|()| batch.commit);
                let has_failed = committed.is_err();
                done(committed);
                if has_failed {
                    return;
                }
            }
        })?;
        Ok(Self { batches: Some(sender), thread: Some(thread) })
    }

    /// Has `batch` written. Answers whether the thread still writes: after a failed commit it does not.
    pub fn commit(&self, batch: Arc<Batch<D>>) -> bool {
        self.batches.as_ref().is_some_and(|batches| batches.send(batch).is_ok())
    }
}

/// Waits until everything is written.
impl<D> Drop for Committer<D> {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
