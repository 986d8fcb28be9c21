//! What a leader has in its hands, and the work that is done in its name.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::{Mutex, watch};
use tollgate_types::Token;

use crate::backend::{LossCause, Release};
use crate::claim::Details;
use crate::count::{Count, Counted};
use crate::election::say;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lease::Lease;

/// To lead, until it is resigned, dropped or lost. Everything a [`Lease`] tells can be asked of it.
///
/// Whoever does something in the leader's name has a [`Work`]. The next leader is let in only after the last of these is
/// gone, also if this is dropped before: what one leader does is over before another begins, unless its time runs out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-leadership").await?;
/// let leadership = locks.election("scheduler").campaign("host-7").await?;
/// let work = leadership.work();
/// let working = tokio::spawn(async move {
///     // Again and again, until it is over.
///     work.ended().await;
/// });
/// leadership.proclaim("host-7, ready").await?;
/// leadership.resign().await?; // tells the task, and waits for it
/// # working.await.expect("it ended");
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: Arc<Guard>,
    works: Count,
    resigning: watch::Sender<bool>,
    said: Mutex<Details>,
}

impl Leadership {
    pub(crate) fn new(guard: Guard, said: Details) -> Self {
        let resigning = watch::Sender::new(false);
        Self { guard: Arc::new(guard), works: Count::default(), resigning, said: Mutex::new(said) }
    }

    /// Larger than that of every leader before: the token of the lock.
    pub fn epoch(&self) -> Token {
        self.guard.token()
    }

    /// Has everybody see `value` from now on; see [`Election::observe`](crate::Election::observe). Renews the leadership, too.
    ///
    /// # Errors
    /// `Lost` if somebody else leads, `InvalidArgument` if it is too long. After any other error it may be said or not.
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<()> {
        let mut said = self.said.lock().await;
        let mut next = said.clone();
        say(&mut next, value.into()).map_err(|error| error.during("proclaim"))?;
        // Also if it fails, or is dropped: it may have been said, and the next is another.
        said.revision = next.revision;
        self.guard.hold.tell(&next).await.map_err(|error| error.during("proclaim"))?;
        *said = next;
        Ok(())
    }

    /// Something that is done in the leader's name. Nobody else leads before it is dropped, unless the leadership is lost.
    pub fn work(&self) -> Work {
        Work { guard: self.guard.clone(), resigning: self.resigning.subscribe(), counted: self.works.one() }
    }

    /// Tells all [`work`](Self::work) to end, waits until it has, and lets the next one lead. `AlreadyLost` if the
    /// leadership was lost before that.
    ///
    /// If this is dropped the rest goes on by itself: the next one leads when the last work is dropped.
    pub async fn resign(self) -> Result<Release> {
        self.resigning.send_replace(true);
        tokio::select! {
            biased;
            () = self.works.none_left() => {}
            _ = self.guard.lost() => return Ok(Release::AlreadyLost),
        }
        match Arc::into_inner(self.guard) {
            Some(guard) => guard.release().await,
            // It is released by whoever drops it last.
            None => Ok(Release::Released),
        }
    }

    /// Resigns after work that needed the leadership to the end: fails with `Lost` if it had not lasted until now.
    pub(crate) async fn finish(self) -> Result<()> {
        self.guard.check()?;
        self.resigning.send_replace(true);
        tokio::select! {
            biased;
            () = self.works.none_left() => {}
            cause = self.guard.lost() => return Err(self.lost_error(cause)),
        }
        match Arc::into_inner(self.guard) {
            Some(guard) => guard.finish().await,
            None => Ok(()),
        }
    }

    pub(crate) fn lost_error(&self, cause: LossCause) -> Error {
        self.guard.hold.lost_error(cause)
    }
}

impl Deref for Leadership {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leadership").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Something that is done in a leader's name; see [`Leadership::work`]. Everything a [`Lease`] tells can be asked of it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-work").await?;
/// let leadership = locks.election("scheduler").campaign("host-7").await?;
/// let work = leadership.work();
/// let (resigned, ()) = tokio::join!(leadership.resign(), async {
///     work.ended().await; // it is to end
///     drop(work);
/// });
/// resigned?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it ends the work"]
#[derive(Debug)]
pub struct Work {
    // Dropped before it is counted as done: whoever waits for that has the only one left.
    guard: Arc<Guard>,
    resigning: watch::Receiver<bool>,
    counted: Counted,
}

impl Work {
    /// Completes when the work is to end: the leader resigns, or has lost its leadership.
    pub async fn ended(&self) {
        let mut resigning = self.resigning.clone();
        tokio::select! {
            biased;
            _ = self.guard.lost() => {}
            // Whoever dropped the leadership wants it to end, too.
            _ = resigning.wait_for(|resigning| *resigning) => {}
        }
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        let counted = self.counted.another();
        Self { guard: self.guard.clone(), resigning: self.resigning.clone(), counted }
    }
}

impl Deref for Work {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}
