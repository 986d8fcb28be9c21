//! What every case needs.

pub(crate) use std::sync::Arc;
pub(crate) use std::time::{Duration, Instant};

pub(crate) use tollgate_core::capabilities::{Adopt, Capabilities, Liveness, Queue, Revoke, Scope};
pub(crate) use tollgate_core::{
    Attempt, Error, ErrorKind, Extension, Guard, GuardState, LockName, LossCause, Mode, OwnerId, Release,
    Revocation,
};

pub(crate) use super::{Case, case};
pub(crate) use crate::scale::scale;
pub(crate) use crate::subject::{PATIENCE, World, eventually};

/// Whether grants end by themselves.
pub(crate) fn expires(capabilities: &Capabilities) -> bool {
    capabilities.liveness != Liveness::Process
}

/// Whether helper processes can be clients of the same engine.
pub(crate) fn reaches_processes(capabilities: &Capabilities) -> bool {
    capabilities.scope != Scope::Process
}

/// Whether there is a wire between client and engine.
pub(crate) fn networked(capabilities: &Capabilities) -> bool {
    capabilities.scope == Scope::Network
}

/// Whether those who wait are served in order.
pub(crate) fn queues(capabilities: &Capabilities) -> bool {
    capabilities.queue == Queue::Fifo
}

/// Fails unless `result` is an error of `kind`.
pub(crate) fn expect_kind<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    match result {
        Err(error) if error.kind() == kind => error,
        other => panic!("expected an error of kind {kind:?}, got {other:?}"),
    }
}

/// Waits for `future` as long as anything may take that should happen soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("it never happened that {what}"))
}
