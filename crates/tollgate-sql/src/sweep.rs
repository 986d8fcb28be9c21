//! Cleans up after locks: every now and then, rows that nobody has used for a while are removed, and connections are ended over
//! which somebody asked who gave up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate_core::{Keeper, OwnerId};

use crate::database::Database;

/// How often one client cleans up, if it took locks since.
const EVERY: Duration = Duration::from_secs(30);
/// One in so many clients does it when it comes, too, after a moment.
const EVERY_SO_MANY: u128 = 16;
const SOON: Duration = Duration::from_millis(20);
/// Rows are removed when they were idle for a minute: after its last lock a client cleans up so many times more.
const AFTERWARDS: u8 = 4;
/// After how long an ask that was left behind is ended here. Whoever withdraws is done by then, if the server answers.
const LEFT_FOR: Duration = Duration::from_secs(15);

/// The task of one client, on the keeper. It ends with the client.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// How many times are left.
    left: Arc<AtomicU8>,
    task: JoinHandle<()>,
}

impl Sweeper {
    pub(crate) fn start<D: Database>(keeper: &Keeper, database: &Arc<D>) -> Self {
        // Programs that end soon, as commands do, clean up sometimes, too. One that only waits does not: there may be a crowd.
        let soon = OwnerId::random().to_bits().is_multiple_of(EVERY_SO_MANY);
        let left = Arc::new(AtomicU8::new(u8::from(soon)));
        let (database, counted) = (Arc::downgrade(database), left.clone());
        let task = keeper.spawn(async move {
            let mut pause = if soon { SOON } else { EVERY };
            loop {
                tokio::time::sleep(pause).await;
                pause = EVERY;
                let Some(database) = database.upgrade() else { return };
                database.reclaim(LEFT_FOR).await;
                let due =
                    counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if due.is_ok() {
                    // What is not cleaned up now is another time, or by somebody else.
                    let _ = database.sweep().await;
                }
            }
        });
        Self { left, task }
    }

    /// A lock was taken, so that there will be something to clean up.
    pub(crate) fn is_needed(&self) {
        if self.left.load(Ordering::Relaxed) < AFTERWARDS {
            self.left.store(AFTERWARDS, Ordering::Relaxed);
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}
