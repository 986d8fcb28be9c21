//! Several locks at once: all or nothing, in one order for everybody.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use futures_util::future::{BoxFuture, select_all};
use tollgate_types::{LockName, OnDeadlock};

use crate::backend::{LossCause, Release};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::lock::{LockRequest, within_patience};
use crate::party::PartyHandle;

/// A request for several locks. They are taken one after the other in the order of their names, which is
/// the same for everybody, so that no two sets wait for each other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-set").await?;
/// use std::time::Duration;
///
/// let both = locks.lock_all(["payment/7", "inventory/9"]).wait(Duration::from_secs(10)).acquire().await?;
/// assert!(locks.lock_all(["inventory/9", "x"]).try_acquire().await?.is_none());
/// both.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a request does nothing until it is acquired"]
#[derive(Debug, Clone)]
pub struct SetRequest {
    /// What each of them is asked for with; its own name is not used.
    each: LockRequest,
    names: Vec<String>,
    wait: Option<Duration>,
}

impl SetRequest {
    pub(crate) fn new(each: LockRequest, names: Vec<String>) -> Self {
        Self { each, names, wait: None }
    }

    /// Shares every one of them with other shared holders.
    pub fn shared(mut self) -> Self {
        self.each = self.each.shared();
        self
    }

    /// Takes one of `limit` permits of every one of them.
    pub fn permit(mut self, limit: u32) -> Self {
        self.each = self.each.permit(limit);
        self
    }

    /// How long each lives without renewal; 30 s unless said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.each = self.each.ttl(ttl);
        self
    }

    /// Adds something that people see who look at one of the locks.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.each = self.each.meta(key, value);
        self
    }

    /// Gives the set up after it was held for `most`, whatever the work does.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.each = self.each.max_hold(most);
        self
    }

    /// Gives each up when nobody called its [`progress`](crate::Lease::progress) for this long.
    pub fn stall_after(mut self, silence: Duration) -> Self {
        self.each = self.each.stall_after(silence);
        self
    }

    /// Has nobody renew them: they end with their ttl.
    pub fn no_renew(mut self) -> Self {
        self.each = self.each.no_renew();
        self
    }

    /// Keeps each name closed for `delay` if its holder is lost rather than released.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.each = self.each.lock_delay(delay);
        self
    }

    /// Says which task or transaction the set belongs to.
    pub fn party(mut self, party: &PartyHandle) -> Self {
        self.each = self.each.party(party);
        self
    }

    /// What becomes of a claim whose waiting might never end, because the [party](Self::party) holds more than this set.
    pub fn on_deadlock(mut self, policy: OnDeadlock) -> Self {
        self.each = self.each.on_deadlock(policy);
        self
    }

    /// Waits at most this long for all of them together.
    pub fn wait(mut self, most: Duration) -> Self {
        self.wait = Some(most);
        self
    }

    /// Takes all of them, waiting as long as [`wait`](Self::wait) says. Fails with `Busy` if that was
    /// not enough, and holds none of them then.
    pub async fn acquire(self) -> Result<Guards> {
        let wait = self.wait;
        self.take(wait).await?.map_err(|busy| {
            Error::new(
                ErrorKind::Busy,
                format!(
                    "the lock is still busy after {:?}; none of the set is held",
                    wait.unwrap_or_default()
                ),
            )
            .during("acquire")
            .on(&busy)
        })
    }

    /// Takes all of them if they are free, or come free within [`wait`](Self::wait); `None` if one is busy.
    pub async fn try_acquire(self) -> Result<Option<Guards>> {
        let wait = self.wait.unwrap_or_default();
        Ok(self.take(Some(wait)).await?.ok())
    }

    /// All guards, or the name of the lock that was busy.
    async fn take(self, most: Option<Duration>) -> Result<Result<Guards, LockName>> {
        let clock = self.each.clock().clone();
        let until = most.map(|most| clock.now() + most);
        let mut taken = Guards { guards: Vec::new() };
        for name in self.sorted()? {
            let mut request = self.each.clone().named(&name);
            if let Some(until) = until {
                request = request.wait(until.since(clock.now()));
            }
            // Without the select a lock lost while we wait for the next one would be found out late.
            let next = tokio::select! {
                guard = async { if until.is_some() { request.try_acquire().await } else { request.acquire().await.map(Some) } } => guard,
                (name, cause) = taken.lost() => Err(Error::new(ErrorKind::Lost, format!("the lock was lost while waiting for the rest of the set: {cause}")).during("acquire").on(&name)),
            };
            match next {
                Ok(Some(guard)) => taken.guards.push(guard),
                Ok(None) => {
                    // Busy is busy, whether or not the others' releases are answered.
                    let _ = taken.release_within_patience(&*clock).await;
                    return Ok(Err(name));
                }
                Err(error) => {
                    // What could not be released now is released in the background.
                    let _ = taken.release_within_patience(&*clock).await;
                    return Err(error);
                }
            }
        }
        taken.check()?;
        Ok(Ok(taken))
    }

    fn sorted(&self) -> Result<BTreeSet<LockName>> {
        let mut sorted = BTreeSet::new();
        for name in &self.names {
            let name = LockName::new(name).map_err(|error| Error::from(error).during("acquire"))?;
            if sorted.contains(&name) {
                return Err(Error::invalid("the set names this lock twice; a lock is not re-entrant")
                    .during("acquire")
                    .on(&name));
            }
            sorted.insert(name);
        }
        if sorted.is_empty() {
            return Err(Error::invalid("a set needs at least one name").during("acquire"));
        }
        Ok(sorted)
    }
}

/// Several held locks, sorted by name. Dropping them releases all in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-guards").await?;
/// let both = locks.lock_all(["b", "a"]).acquire().await?;
/// assert_eq!(both.iter().map(|guard| guard.name().as_str()).collect::<Vec<_>>(), ["a", "b"]);
/// both.check()?;
/// both.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping guards releases the locks"]
#[derive(Debug)]
pub struct Guards {
    guards: Vec<Guard>,
}

impl Guards {
    /// The guard of one of them.
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter()
    }

    /// Fails with `Lost` unless every one of them is held.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(|guard| guard.check())
    }

    /// Completes when the first of them is lost. Never, if there are none.
    pub fn lost(&self) -> impl Future<Output = (LockName, LossCause)> + Send + 'static {
        let each: Vec<BoxFuture<'static, _>> = self
            .guards
            .iter()
            .map(|guard| {
                let (name, lost) = (guard.name().clone(), guard.lost());
                Box::pin(async move { (name, lost.await) }) as BoxFuture<'static, _>
            })
            .collect();
        async move {
            if each.is_empty() {
                return std::future::pending().await;
            }
            select_all(each).await.0
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.guards.len()
    }

    /// Whether there are none, which a set never has.
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Makes sure that at least `wanted` is left of every one of them, renewing if needed, or fails.
    pub async fn ensure(&self, wanted: Duration) -> Result<()> {
        for guard in &self.guards {
            guard.ensure(wanted).await?;
        }
        Ok(())
    }

    /// As [`release`](Self::release), without waiting for ever for an engine that does not answer.
    async fn release_within_patience(self, clock: &dyn Clock) -> Result<Release> {
        within_patience(clock, self.release()).await
    }

    /// Gives all of them back: `AlreadyLost` if one of them was. The first error is told; the rest are
    /// released all the same.
    pub async fn release(self) -> Result<Release> {
        let mut outcome = Ok(Release::Released);
        for guard in self.guards.into_iter().rev() {
            match (guard.release().await, &outcome) {
                (Err(error), Ok(_)) => outcome = Err(error),
                (Ok(Release::AlreadyLost), Ok(_)) => outcome = Ok(Release::AlreadyLost),
                _ => {}
            }
        }
        outcome
    }
}

impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;
    fn into_iter(self) -> Self::IntoIter {
        self.guards.into_iter()
    }
}
