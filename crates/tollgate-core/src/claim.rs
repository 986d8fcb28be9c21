//! A claim: one attempt to take a lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tollgate_types::{LockName, Mode, OnDeadlock, OwnerId};

use crate::error::{Error, Result};
use crate::party::PartyHandle;
use crate::stake::Stake;

/// One attempt to take a lock, with everything an engine must know of it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Which lock.
    pub name: LockName,
    /// How it is to be shared.
    pub mode: Mode,
    /// How long the grant lives without renewal.
    pub ttl: Duration,
    /// Fresh for every acquisition; whatever is done to the grant later is done by this id.
    pub owner: OwnerId,
    /// Who asks, for people who look.
    pub details: Details,
    /// The task or transaction this claim belongs to.
    pub party: Option<PartyHandle>,
    /// What becomes of it if its waiting might never end: for engines that find that out themselves.
    pub on_deadlock: OnDeadlock,
    /// How long the name stays closed if this holder is lost rather than released.
    pub lock_delay: Duration,
    /// Wants a lease of its own, which ends with nobody else's: nobody will renew it, or another process
    /// will adopt it. Engines with one session per client open another one for it.
    pub standalone: bool,
    /// What the engine has answered so far, if the claim waits.
    pub wait_status: WaitStatus,
}

impl Claim {
    /// A claim with a fresh owner id and nothing special.
    pub fn new(name: LockName, mode: Mode, ttl: Duration) -> Self {
        let (owner, process) = OwnerId::random_and_process();
        Self {
            name,
            mode,
            ttl,
            owner,
            details: Details::of_process(process),
            party: None,
            on_deadlock: OnDeadlock::Timeout,
            lock_delay: Duration::ZERO,
            standalone: false,
            wait_status: WaitStatus::default(),
        }
    }
}

/// Whether the engine has answered that a waiting claim is behind others. All copies of a claim share it.
///
/// Only the engine's answer makes a lock busy: while the engine is silent, the lock may as well be free. A backend reports the
/// answer with [`set_queued`](Self::set_queued); [`wait::poll`](crate::wait::poll) and [`queued::wait`](crate::queued::wait) do
/// it for their engines.
#[derive(Debug, Clone, Default)]
pub struct WaitStatus(Arc<AtomicU8>);

impl WaitStatus {
    const QUEUED: u8 = 1;
    const OVER: u8 = 2;

    /// The engine has answered that the claim has to wait.
    pub fn set_queued(&self) {
        self.0.store(Self::QUEUED, Ordering::Release);
    }

    /// Whether the engine has answered that the claim has to wait.
    pub fn is_queued(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::QUEUED
    }

    /// The time to wait is over. Answers whether the engine had answered by then.
    pub(crate) fn set_over(&self) -> bool {
        self.0.swap(Self::OVER, Ordering::AcqRel) == Self::QUEUED
    }

    /// Whether the time to wait is over: [`Note::WaitOver`](crate::Note::WaitOver) tells the outcome then.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::OVER
    }
}

/// Milliseconds since 1970, by the wall clock.
pub(crate) fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Who holds or waits, for people who look. Nothing is decided by it but who may wait, by claims with a deadlock policy.
///
/// ```
/// let details = tollgate::Details::of_this_process();
/// assert_eq!(details.pid, std::process::id());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Details {
    /// The host's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The process on that host; 0 if it is not known, as of a client that is not Tollgate.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pid: u32,
    /// The wall-clock time of the claim, in milliseconds since 1970; 0 if it is not known. For display only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since_ms: u64,
    /// What the user added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// How often a holder has changed what is said here: where copies differ, the one with the most counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u32,
    /// What those need to know who take the same locks with a deadlock policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stake: Option<Stake>,
}

impl Details {
    /// The most bytes that keys and values of `meta` may have together.
    pub const MAX_META_BYTES: usize = 4096;

    /// This process, now.
    pub fn of_this_process() -> Self {
        Self::of_process(std::process::id())
    }

    fn of_process(pid: u32) -> Self {
        Self {
            host: host_name().to_owned(),
            pid,
            since_ms: wall_clock_ms(),
            meta: BTreeMap::new(),
            revision: 0,
            stake: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bytes: usize = self.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > Self::MAX_META_BYTES {
            return Err(Error::invalid(format!(
                "meta has {bytes} bytes, and the limit is {}; store large data elsewhere and put a \
                 reference here",
                Self::MAX_META_BYTES
            )));
        }
        Ok(())
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// The host's name, read once.
fn host_name() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_holder_is_left_out() {
        assert_eq!(serde_json::to_string(&Details::default()).unwrap(), "{}");
        let known = serde_json::to_string(&Details::of_this_process()).unwrap();
        assert!(known.contains("\"pid\":") && known.contains("\"since_ms\":"), "{known}");
    }
}
