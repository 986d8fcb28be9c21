//! From `--url` to locks that more than one process can see.

use std::ops::ControlFlow;

use tollgate::capabilities::Scope;
use tollgate::{Error, Locks, Result};

use crate::exit::Exit;
use crate::signals::Signals;
use crate::take::close;

/// As [`connect`], unless a signal comes first: whoever hears signals must end by them on a hanging disk, too.
pub(crate) async fn connect_or_end(url: &str, signals: &mut Signals) -> Result<ControlFlow<Exit, Locks>> {
    tokio::select! {
        biased;
        locks = connect(url) => locks.map(ControlFlow::Continue),
        signal = signals.next() => Ok(ControlFlow::Break(Exit::of_signal(signal))),
    }
}

/// Connects, does `work`, and leaves nothing open, whatever became of it.
pub(crate) async fn with_locks<T>(url: &str, work: impl AsyncFnOnce(&Locks) -> Result<T>) -> Result<T> {
    let locks = connect(url).await?;
    let done = work(&locks).await;
    close(&locks).await;
    done
}

pub(crate) async fn connect(url: &str) -> Result<Locks> {
    let locks = tollgate::connect(url).await?;
    if locks.capabilities().scope == Scope::Process {
        return Err(Error::unsupported(format!(
            "locks of {url} are seen by one process only, and this command is one of its own; use file:DIR"
        )));
    }
    Ok(locks)
}
