//! A claim: one attempt to take a lock.

use std::collections::BTreeMap;
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
        }
    }
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
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            host: host_name().to_owned(),
            pid,
            since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            meta: BTreeMap::new(),
            revision: 0,
            stake: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bytes: usize = self.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > Self::MAX_META_BYTES {
            return Err(Error::invalid(format!(
                "meta has {bytes} bytes, at most {} fit; keep large things elsewhere and put a reference here",
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
