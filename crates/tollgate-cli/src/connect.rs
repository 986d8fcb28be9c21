//! Connecting to the engine that `--url` names.

use std::ops::ControlFlow;
use std::time::Duration;

use tollgate::capabilities::Scope;
use tollgate::{Error, ErrorKind, Locks, Result};

use crate::exit::Exit;
use crate::patience::Patience;
use crate::signals::Signals;
use crate::take::close;

/// As [`connect`], unless a signal comes first: a command that catches signals must end by them
/// also while a disk hangs.
pub(crate) async fn connect_or_end(url: &str, signals: &mut Signals) -> Result<ControlFlow<Exit, Locks>> {
    tokio::select! {
        biased;
        locks = connect(url) => locks.map(ControlFlow::Continue),
        signal = signals.next() => Ok(ControlFlow::Break(Exit::of_signal(signal))),
    }
}

/// As [`connect_or_end`], for a command that waits for a lock: an engine that looks overloaded is
/// tried again.
pub(crate) async fn connect_patiently(
    url: &str,
    patience: &mut Patience,
    signals: &mut Signals,
) -> Result<ControlFlow<Exit, Locks>> {
    let connecting = async {
        loop {
            match connect(url).await {
                Ok(locks) => return Ok(locks),
                Err(error) => tokio::time::sleep(patience.pause(error)?).await,
            }
        }
    };
    tokio::select! {
        biased;
        locks = connecting => locks.map(ControlFlow::Continue),
        signal = signals.next() => Ok(ControlFlow::Break(Exit::of_signal(signal))),
    }
}

/// Connects, does `work`, and closes the connection, whatever the result.
pub(crate) async fn with_locks<T>(url: &str, work: impl AsyncFnOnce(&Locks) -> Result<T>) -> Result<T> {
    let locks = connect(url).await?;
    let done = work(&locks).await;
    close(&locks).await;
    done
}

/// How long connecting may take: longer than any healthy engine needs, also if another client creates the tables meanwhile.
const LIMIT: Duration = Duration::from_secs(15);

/// Connects to an engine whose locks other processes can see.
pub(crate) async fn connect(url: &str) -> Result<Locks> {
    let locks = tokio::time::timeout(LIMIT, tollgate::connect(url)).await.unwrap_or_else(|_| {
        let message =
            format!("the engine did not finish connecting within {LIMIT:?}; is it overloaded, or stopped?");
        Err(Error::new(ErrorKind::Unavailable, message).of_overload().during("connect"))
    })?;
    if locks.capabilities().scope == Scope::Process {
        return Err(Error::unsupported(format!(
            "locks of {}: are visible to one process only, and this command is a process of its own; use file:DIR",
            url.split(':').next().unwrap_or_default()
        )));
    }
    Ok(locks)
}
