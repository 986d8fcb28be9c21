//! Keeping a lock after the process that took it has ended: by a lease that expires, or by a holder
//! process.

use tollgate::capabilities::{Adopt, Liveness};
use tollgate::{Error, Grant, Guard, Guards, Locks, Moment, Result};

use crate::clock::now;
use crate::exit::in_full;
use crate::holder::{Heir, Mission};
use crate::signals::Signals;
use crate::{show, tell};

/// How locks of an engine outlive the process that took them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keeping<'a> {
    /// The engine keeps them until their lease expires.
    Lease,
    /// They end with the process that has them, so a holder process is left behind.
    Holder { url: &'a str },
}

impl<'a> Keeping<'a> {
    /// How locks of this engine are kept after a command of `run --at-least` has ended.
    pub(crate) fn of(locks: &Locks, url: &'a str) -> Result<Self> {
        let capabilities = locks.capabilities();
        match (capabilities.adopt, capabilities.liveness) {
            (Adopt::Any, _) => Ok(Self::Lease),
            (Adopt::Never, Liveness::Process) => Ok(Self::Holder { url }),
            // A renewed lock shares its session with the client's other locks, and ends with the
            // session.
            (Adopt::Standalone | Adopt::Never, _) => Err(Error::unsupported(format!(
                "a lock of the {} backend ends with the session of the process that took it, so --at-least \
                 cannot keep it; use another engine, or let the command itself take that long",
                capabilities.backend
            ))),
        }
    }

    /// Keeps the locks until `until`. Returns at once if the engine or a holder process keeps them,
    /// and at `until` otherwise.
    pub(crate) async fn keep(self, locks: &Locks, guards: Guards, until: Moment, signals: &mut Signals) {
        match self {
            Self::Lease => {
                for guard in guards {
                    if let Err((error, guard)) = leave_to_lease(locks, guard, until).await {
                        stay(guard.into_iter().collect(), until, &error, signals).await;
                    }
                }
            }
            Self::Holder { url } => {
                let mission = Mission { url, until, listens: false };
                let left = match Heir::start(&mission, &guards).await {
                    Ok(mut heir) => heir.inherit(guards).map(drop),
                    Err(error) => {
                        stay(guards.into_iter().collect(), until, &error, signals).await;
                        Ok(())
                    }
                };
                if let Err(error) = left {
                    tell::note(&format!("{}; the lock is already free", in_full(&error)));
                }
            }
        }
    }
}

/// Lets the lease expire at `until`. If the engine refuses, returns the guard again, unless the
/// lock is lost.
async fn leave_to_lease(locks: &Locks, guard: Guard, until: Moment) -> Result<(), (Error, Option<Guard>)> {
    let grant: Grant = guard.into_grant().map_err(|error| (error, None))?;
    // Whole milliseconds, rounded up: the lock must not end too early.
    let left = until.since(now()).as_millis() as u64 + 1;
    let range = locks.capabilities().ttl;
    let ttl = std::time::Duration::from_millis(left).clamp(range.min, range.max);
    match locks.extend_grant(&grant, ttl).await {
        Ok(_) => Ok(()),
        Err(error) => Err((error, locks.adopt(grant).await.ok())),
    }
}

/// Holds the locks in this process, because neither the engine nor a holder process can. A signal
/// ends it.
async fn stay(guards: Vec<Guard>, until: Moment, why: &Error, signals: &mut Signals) {
    if guards.is_empty() {
        return tell::note(&format!("{}; the lock is lost", in_full(why)));
    }
    let left = show::short(until.since(now()));
    tell::note(&format!("{}; staying for {left} to keep the lock", in_full(why)));
    while now() < until && guards.iter().any(|guard| guard.check().is_ok()) {
        tokio::select! {
            _ = signals.next() => break,
            () = tokio::time::sleep(until.since(now()).min(std::time::Duration::from_secs(1))) => {}
        }
    }
    for guard in guards {
        // A release without an answer is repeated in the background.
        let _ = guard.release().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    async fn kept(name: &str, ttl: Duration, least: Duration) -> Duration {
        let locks = tollgate::connect(&format!("memory:{name}")).await.unwrap();
        let guards = locks.lock_all(["a", "b"]).ttl(ttl).acquire().await.unwrap();
        let started = now();
        let until = started + least;
        let keeping = Keeping::of(&locks, "memory:").unwrap();
        keeping.keep(&locks, guards, until, &mut Signals::listen().unwrap()).await;
        assert!(now().since(started) < least / 2, "it returns at once");
        let next = locks.lock_all(["a", "b"]).acquire().await.unwrap();
        let took = now().since(started);
        next.release().await.unwrap();
        took
    }

    #[tokio::test]
    async fn a_lease_runs_out_when_the_time_is_over_whatever_its_ttl() {
        let least = MS * 2000;
        for (name, ttl) in [("short", MS * 100), ("long", Duration::from_secs(3600))] {
            let took = kept(name, ttl, least).await;
            assert!(took >= least && took < Duration::from_secs(20), "{name}: {took:?}");
        }
    }
}
