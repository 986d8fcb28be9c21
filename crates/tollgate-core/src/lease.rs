//! A view of a held lock that cannot release it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tollgate_types::{LockName, Mode, Moment, Token};

use crate::backend::LossCause;
use crate::error::Result;
use crate::fence::Fence;
use crate::hold::{GuardState, Hold};
use crate::states::States;

/// A view of a held lock: everything a [`Guard`](crate::Guard) tells, without the power to release it.
/// Cloning is cheap; a view that outlives its guard says `Lost`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-lease").await?;
/// use tollgate::GuardState;
///
/// let guard = locks.lock("orders/42").acquire().await?;
/// let lease = guard.lease();
/// assert_eq!(lease.state(), GuardState::Held);
/// guard.release().await?;
/// assert!(lease.check().is_err(), "a view does not outlive its guard");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lease {
    pub(crate) hold: Arc<Hold>,
}

impl Lease {
    /// Which lock.
    pub fn name(&self) -> &LockName {
        &self.hold.grant.name
    }

    /// How it is shared.
    pub fn mode(&self) -> Mode {
        self.hold.grant.mode
    }

    /// The bare token, whether or not the lock is still held. Use [`fence`](Self::fence) for writes.
    pub fn token(&self) -> Token {
        self.hold.grant.token
    }

    /// The token to show to a resource, after re-checking the deadline.
    ///
    /// Fails with `Lost` if the lock is not held any more, and with `Unsupported` for a permit: several
    /// permit holders are not one writer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-fence").await?;
    /// use tollgate::Mark;
    ///
    /// let mut mark = Mark::new(); // the resource's
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// mark.admit(guard.fence()?)?; // before the first read
    /// # Ok(())
    /// # }
    /// ```
    pub fn fence(&self) -> Result<Fence> {
        self.hold.fence()
    }

    /// Whether the lock may be relied on. Reads the clock, so it never says `Held` past the deadline.
    pub fn state(&self) -> GuardState {
        self.hold.state()
    }

    /// Fails with `Lost`, and the cause, unless the lock is held.
    pub fn check(&self) -> Result<()> {
        self.hold.check()
    }

    /// The time left until the lock is lost unless it is renewed; `None` where nothing expires.
    pub fn remaining(&self) -> Option<Duration> {
        self.hold.remaining()
    }

    /// The moment of the clock (CLOCK_BOOTTIME) at which the lock is lost unless it is renewed; `None` where
    /// nothing expires.
    pub fn deadline(&self) -> Option<Moment> {
        Some(self.hold.deadline().0).filter(|deadline| *deadline != Moment::MAX)
    }

    /// What the engine refused the last renewal with, until one succeeds. `None` also if it did not answer at all.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-trouble").await?;
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// assert_eq!(guard.trouble(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trouble(&self) -> Option<String> {
        self.hold.trouble()
    }

    /// Makes sure that at least `wanted` is left, renewing if needed, or fails.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-ensure").await?;
    /// use std::time::Duration;
    ///
    /// let guard = locks.lock("orders/42").ttl(Duration::from_secs(30)).acquire().await?;
    /// guard.ensure(Duration::from_secs(5)).await?; // time enough for the next step
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ensure(&self, wanted: Duration) -> Result<()> {
        self.hold.ensure(wanted).await
    }

    /// Reports that the work goes on, for locks taken with `stall_after`.
    pub fn progress(&self) {
        self.hold.report_progress();
    }

    /// Completes with the cause when the lock is lost, or released.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tollgate::Result<()> {
    /// let locks = tollgate::connect("memory:doc-lost").await?;
    /// let guard = locks.lock("orders/42").acquire().await?;
    /// let work = std::future::ready("done");
    /// tokio::select! {
    ///     cause = guard.lost() => println!("lost: {cause}"),
    ///     outcome = work => println!("{outcome}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = LossCause> + Send + 'static {
        self.hold.watch().lost()
    }

    /// Follows the state, as the keeper tells it: what only [`state`](Self::state) sees, that a renewal is
    /// late, is not among it.
    pub fn watch(&self) -> States {
        self.hold.watch()
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("token", &self.token())
            .field("mode", &self.mode())
            .field("state", &self.state())
            .finish()
    }
}
