//! A backend whose engine is out of reach now and then, from a script or from a seed.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::backend::{BoxFuture, BoxStream};
use tollgate_core::{
    Attempt, Backend, Capabilities, Claim, Details, Error, ErrorKind, Event, Extension, Grant, LockName,
    LockState, LossCause, Release, Result, Revocation, Token,
};

/// What can go wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Refused before anything was sent.
    Refused,
    /// The request is lost on the way; nobody knows.
    RequestLost,
    /// It is executed; the reply is lost.
    ReplyLost,
    /// The request is lost and nobody ever answers.
    Silence,
    /// It is executed and nobody ever answers.
    SilenceAfter,
}

/// What is asked of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `try_acquire`.
    TryAcquire,
    /// `acquire`.
    Acquire,
    /// `withdraw`.
    Withdraw,
    /// `extend`.
    Extend,
    /// `release`.
    Release,
}

/// A backend with troubles.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    always: HashMap<Operation, Trouble>,
    next: HashMap<Operation, Vec<Trouble>>,
    random: Option<Random>,
}

/// Troubles drawn from a seed: the same seed gives the same troubles in the same order.
struct Random {
    state: u64,
    per_thousand: u64,
}

impl Faulty {
    /// No trouble yet.
    pub fn new(inner: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self { inner, plan: Mutex::default() })
    }

    /// About `per_thousand` of all requests are in trouble, drawn from `seed`.
    pub fn seeded(inner: Arc<dyn Backend>, seed: u64, per_thousand: u64) -> Arc<Self> {
        let random = Some(Random { state: seed, per_thousand });
        Arc::new(Self { inner, plan: Mutex::new(Plan { random, ..Plan::default() }) })
    }

    /// Every `operation` from now on is in trouble.
    pub fn always(&self, operation: Operation, trouble: Trouble) {
        self.plan().always.insert(operation, trouble);
    }

    /// The next `operation` is in trouble; may be called several times for several.
    pub fn next(&self, operation: Operation, trouble: Trouble) {
        self.plan().next.entry(operation).or_default().push(trouble);
    }

    /// No more trouble.
    pub fn heal(&self) {
        *self.plan() = Plan::default();
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, operation: Operation) -> Option<Trouble> {
        let mut plan = self.plan();
        if let Some(next) = plan.next.get_mut(&operation)
            && !next.is_empty()
        {
            return Some(next.remove(0));
        }
        if let Some(trouble) = plan.always.get(&operation) {
            return Some(*trouble);
        }
        plan.random.as_mut()?.draw()
    }

    /// Sends `request` through the trouble that is due.
    async fn send<T>(&self, operation: Operation, request: BoxFuture<'_, Result<T>>) -> Result<T> {
        let unknown = || Error::new(ErrorKind::Indeterminate, "the reply did not come");
        match self.draw(operation) {
            None => request.await,
            Some(Trouble::Refused) => Err(Error::new(ErrorKind::Unavailable, "the engine cannot be reached")),
            Some(Trouble::RequestLost) => Err(unknown()),
            Some(Trouble::ReplyLost) => {
                request.await?;
                Err(unknown())
            }
            Some(Trouble::Silence) => std::future::pending().await,
            Some(Trouble::SilenceAfter) => {
                request.await?;
                std::future::pending().await
            }
        }
    }
}

impl Random {
    fn draw(&mut self) -> Option<Trouble> {
        let troubles = [
            Trouble::Refused,
            Trouble::RequestLost,
            Trouble::ReplyLost,
            Trouble::Silence,
            Trouble::SilenceAfter,
        ];
        let hit = self.next() % 1000 < self.per_thousand;
        let which = self.next() as usize % troubles.len();
        hit.then_some(troubles[which])
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Backend for Faulty {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.send(Operation::TryAcquire, self.inner.try_acquire(claim)))
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(self.send(Operation::Acquire, self.inner.acquire(claim)))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.send(Operation::Withdraw, self.inner.withdraw(claim)))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(self.send(Operation::Extend, self.inner.extend(grant, ttl, details)))
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(self.send(Operation::Release, self.inner.release(grant)))
    }

    fn lost<'a>(&'a self, grant: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
        self.inner.lost(grant)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        self.inner.inspect(name)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<LockState>> {
        self.inner.list(prefix)
    }

    fn events<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Event>> {
        self.inner.events(prefix)
    }

    fn revoke<'a>(&'a self, name: &'a LockName, token: Token) -> BoxFuture<'a, Result<Revocation>> {
        self.inner.revoke(name, token)
    }

    fn descriptor(&self, grant: &Grant) -> Result<OwnedFd> {
        self.inner.descriptor(grant)
    }

    fn bequeath(&self, grant: &Grant) -> Result<OwnedFd> {
        self.inner.bequeath(grant)
    }

    fn inherit<'a>(&'a self, grant: &'a Grant, lock: OwnedFd) -> BoxFuture<'a, Result<()>> {
        self.inner.inherit(grant, lock)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_troubles_again() {
        let draw = |seed| {
            let mut random = Random { state: seed, per_thousand: 300 };
            (0..200).map(|_| random.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let hits = draw(7).into_iter().flatten().count();
        assert!((30..100).contains(&hits), "{hits} of 200 at 300 in a thousand");
    }
}
