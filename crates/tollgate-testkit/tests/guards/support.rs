//! Engines, clients, and backends that differ from another in one thing.

pub(crate) use std::sync::Arc;
pub(crate) use std::time::{Duration, Instant};

use tollgate_core::BootClock;
pub(crate) use tollgate_core::layer::Layer;
pub(crate) use tollgate_core::{
    Attempt, Backend, BoxFuture, Capabilities, Claim, Clock, Deadline, Details, Error, ErrorKind, Extension,
    Grant, GuardState, Keeper, LockName, Locks, LossCause, Mode, Release, Result, RevokeMode,
};
pub(crate) use tollgate_embedded::MemoryBackend;
use tollgate_testkit::fakes::session::{self, SessionBackend};
pub(crate) use tollgate_testkit::fault::{Faulty, Operation, Trouble};
pub(crate) use tollgate_testkit::subject::{PATIENCE, eventually};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(BootClock::new(Keeper::global().unwrap()))
}

/// An engine that nobody else sees.
pub(crate) fn memory() -> Arc<dyn Backend> {
    Arc::new(MemoryBackend::new(clock(), &Keeper::global().unwrap()))
}

/// A client of a session-shaped engine that nobody else sees.
pub(crate) fn session() -> Arc<dyn Backend> {
    session_at(&session::start())
}

/// A client of the session-shaped engine at `address`.
pub(crate) fn session_at(address: &str) -> Arc<dyn Backend> {
    Arc::new(SessionBackend::new(address, clock(), Keeper::global().unwrap()))
}

pub(crate) fn locks(backend: &Arc<dyn Backend>) -> Locks {
    Locks::new(backend.clone()).unwrap()
}

/// Locks on `backend` and the troubles they are in.
pub(crate) fn troubled(backend: &Arc<dyn Backend>) -> (Locks, Arc<Faulty>) {
    let faulty = Faulty::new(backend.clone());
    (Locks::new(faulty.clone()).unwrap(), faulty)
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// A claim that is nobody's guard: nobody renews what it is granted.
pub(crate) fn claim(lock: &str, ttl: Duration) -> Claim {
    Claim::new(name(lock), Mode::Exclusive, ttl)
}

pub(crate) async fn granted(backend: &dyn Backend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Busy(contention) => panic!("a free lock was busy: {contention:?}"),
    }
}

/// Waits for `future` as long as anything may take that should happen soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(PATIENCE, what, future).await
}

/// Waits for `future`, which must not need longer than `most`.
pub(crate) async fn within<T>(most: Duration, what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(most, future).await.unwrap_or_else(|_| panic!("not within {most:?}: {what}"))
}

/// Fails unless `result` is an error of `kind`.
pub(crate) fn expect_kind<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind) -> Error {
    match result {
        Err(error) if error.kind() == kind => error,
        other => panic!("expected an error of kind {kind:?}, got {other:?}"),
    }
}

/// Waits until the engine shows `holders` and `waiters` on `lock`.
pub(crate) async fn until(backend: &dyn Backend, lock: &str, holders: usize, waiters: usize) {
    let name = name(lock);
    let seen = || async {
        let state = backend.inspect(&name).await.unwrap();
        let count = state.map_or((0, 0), |state| (state.holders.len(), state.waiters.len()));
        (count == (holders, waiters)).then_some(())
    };
    eventually(&format!("{holders} hold and {waiters} wait for {lock}"), seen).await;
}

pub(crate) async fn until_idle(backend: &dyn Backend, lock: &str) {
    until(backend, lock, 0, 0).await;
}

/// A backend that does some things in its own way.
pub(crate) fn altered(layer: impl Layer) -> Arc<dyn Backend> {
    Arc::new(layer)
}
