//! What unanswered requests may leave behind, now or later.
//!
//! A request whose connection was given up is still on its way: it may lie in a buffer, on either side, and be executed when
//! everything has been looked at over another connection. As long as that may be, its folder is looked at again and again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{Clock, Moment, OwnerId};

use crate::calls::Calls;
use crate::error::Trouble;
use crate::paths::is_of;

/// For how long a system may try to deliver what was sent over a connection that is closed.
const DELIVERED_WITHIN: Duration = Duration::from_secs(180);
/// How often folders are looked at, at most.
const PAUSE: Duration = Duration::from_millis(250);

/// The claims of a session that were withdrawn while nobody knew what had become of them.
#[derive(Default)]
pub(crate) struct Ghosts {
    known: Mutex<Vec<Ghost>>,
    /// There is another one.
    came: Notify,
}

#[derive(Clone)]
struct Ghost {
    folder: String,
    owner: OwnerId,
    until: Moment,
}

impl Ghosts {
    /// A claim on the lock in `folder` may come to be though it was withdrawn.
    pub(crate) fn expect(&self, folder: &str, owner: OwnerId, now: Moment) {
        let ghost = Ghost { folder: folder.to_owned(), owner, until: now + DELIVERED_WITHIN };
        self.known().push(ghost);
        self.came.notify_one();
    }

    /// Removes them when they come, for ever.
    pub(crate) async fn banish(&self, calls: &Calls, clock: &dyn Clock, ttl: Duration) {
        loop {
            if self.known().is_empty() {
                self.came.notified().await;
            }
            clock.sleep_until(clock.now() + (ttl / 4).max(PAUSE)).await;
            let now = clock.now();
            self.known().retain(|ghost| ghost.until > now);
            let all = self.known().clone();
            for Ghost { folder, owner, .. } in all {
                // If it fails there is another time.
                let _ = sweep(calls, &folder, owner).await;
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<Ghost>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deletes what an unanswered request of this owner may have left in `folder`.
pub(crate) async fn sweep(calls: &Calls, folder: &str, owner: OwnerId) -> Result<(), Trouble> {
    // A server that is behind would not show it yet.
    calls.sync(folder).await?;
    let children = match calls.children(folder).await {
        Err(Trouble::NoNode) => return Ok(()),
        children => children?,
    };
    for child in children.iter().filter(|child| is_of(owner, child)) {
        let path = format!("{folder}/{child}");
        match calls.data(&path).await {
            Ok((_, stat)) if stat.ephemeral_owner == calls.session() => {
                calls.delete(&path).await?;
            }
            // It ends with the session that it belongs to.
            Ok(_) | Err(Trouble::NoNode) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(())
}
