//! What a backend can do, as data: the suite is chosen by it, and users can ask.

use std::fmt;
use std::time::Duration;

use tollgate_types::{LockName, Mode, OnDeadlock};

use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::guarantees::Guarantees;

/// What a backend can do. A backend declares everything it can do: a checked-in table lists what each is
/// expected to declare, and leaving something out to dodge a test fails.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-capabilities-type").await?;
/// let can = locks.capabilities();
/// println!("{} takes ttls of {}", can.backend, can.ttl);
/// assert!(can.modes.permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The backend's name, for messages and metrics.
    pub backend: &'static str,
    /// How far it reaches.
    pub scope: Scope,
    /// Which modes it has beside exclusive.
    pub modes: Modes,
    /// What ends a grant whose holder is gone.
    pub liveness: Liveness,
    /// Whether those who wait are served in order.
    pub queue: Queue,
    /// Which ttls it takes.
    pub ttl: TtlRange,
    /// Which grants another process can adopt.
    pub adopt: Adopt,
    /// What breaking a lock does.
    pub revoke: Revoke,
    /// Whether a lost holder's name can stay closed for a while.
    pub lock_delay: bool,
    /// Whether it finds parties that wait for each other, and looks after every other deadlock policy, too.
    pub detect: bool,
    /// How many bytes a name may have.
    pub longest_name: usize,
    /// What its promises rest on.
    pub guarantees: Guarantees,
}

/// How far a backend's locks reach.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-cap-scope").await?;
/// use tollgate::capabilities::Scope;
///
/// assert_eq!(locks.capabilities().scope, Scope::Process);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one host.
    Host,
    /// Every host that reaches the engine.
    Network,
}

/// Which modes a backend has beside exclusive, which all have.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-cap-modes").await?;
/// use tollgate::capabilities::Modes;
///
/// assert_eq!(locks.capabilities().modes, Modes::ALL);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// Many readers.
    pub shared: bool,
    /// Semaphores.
    pub permit: bool,
}

impl Modes {
    /// Exclusive, shared and permits.
    pub const ALL: Self = Self { shared: true, permit: true };
    /// Exclusive alone.
    pub const EXCLUSIVE: Self = Self { shared: false, permit: false };
}

/// What ends a grant whose holder is gone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-cap-liveness").await?;
/// use tollgate::capabilities::Liveness;
///
/// assert_eq!(locks.capabilities().liveness, Liveness::Lease);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The end of the process or connection; nothing expires.
    Process,
    /// The end of the client's session, which is renewed once for all its locks.
    Session,
    /// The grant's own ttl.
    Lease,
}

/// How those who wait are served.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-cap-queue").await?;
/// use tollgate::capabilities::Queue;
///
/// assert_eq!(locks.capabilities().queue, Queue::Fifo);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// First come, first served.
    Fifo,
    /// Everybody tries again after a while.
    Polling,
}

/// Which grants can leave the process that got them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-cap-adopt").await?;
/// use tollgate::capabilities::Adopt;
///
/// assert_eq!(locks.capabilities().adopt, Adopt::Any);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopt {
    /// All of them.
    Any,
    /// Those with a session of their own, which is what `no_renew` asks for.
    Standalone,
    /// None: they live and die with their process.
    Never,
}

/// What breaking a lock does.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-cap-revoke").await?;
/// use tollgate::capabilities::Revoke;
///
/// assert_eq!(locks.capabilities().revoke, Revoke::AskOrForce);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoke {
    /// The holder is asked to leave, or is out at once if that is wanted.
    AskOrForce,
    /// The holder can only be asked to leave.
    Cooperative,
}

/// The ttls a backend takes. Others are refused with this range, never rounded.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-cap-ttlrange").await?;
/// use std::time::Duration;
///
/// let range = locks.capabilities().ttl;
/// assert!(range.min <= Duration::from_secs(30) && Duration::from_secs(30) <= range.max);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TtlRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// Every ttl is a multiple of this.
    pub step: Duration,
}

impl TtlRange {
    fn contains(&self, ttl: Duration) -> bool {
        let whole = self.step.is_zero() || ttl.as_nanos().is_multiple_of(self.step.as_nanos());
        (self.min..=self.max).contains(&ttl) && whole
    }
}

impl fmt::Display for TtlRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to {:?}", self.min, self.max)?;
        if self.step.is_zero() { Ok(()) } else { write!(f, " in steps of {:?}", self.step) }
    }
}

impl Capabilities {
    /// Refuses a name that is too long here.
    pub fn check_name(&self, name: &LockName) -> Result<()> {
        let (bytes, most) = (name.as_str().len(), self.longest_name);
        if bytes <= most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a lock name has at most {most} bytes on this backend, this one has {bytes}"
        )))
    }

    /// Refuses a mode the backend does not have.
    pub fn check_mode(&self, mode: Mode) -> Result<()> {
        let has = match mode {
            Mode::Exclusive => true,
            Mode::Shared => self.modes.shared,
            Mode::Permit { .. } => self.modes.permit,
        };
        if has {
            return Ok(());
        }
        let backend = self.backend;
        Err(Error::unsupported(format!("the {backend} backend has no {mode} locks; use another engine")))
    }

    /// Refuses a ttl the backend cannot keep.
    pub fn check_ttl(&self, ttl: Duration) -> Result<()> {
        if !ttl.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(Error::invalid(format!("a ttl is a whole number of milliseconds, not {ttl:?}")));
        }
        if self.ttl.contains(ttl) {
            return Ok(());
        }
        Err(Error::invalid(format!("the {} backend takes a ttl of {}, not {ttl:?}", self.backend, self.ttl)))
    }

    /// Refuses a grant that cannot leave its process or session.
    pub fn check_adoptable(&self, grant: &Grant) -> Result<()> {
        let dies_with = match self.adopt {
            Adopt::Any => return Ok(()),
            // To renew it would be to renew a stranger's session, with all its locks.
            Adopt::Standalone if grant.standalone => return Ok(()),
            Adopt::Standalone => "session; take the lock with no_renew",
            Adopt::Never => "process",
        };
        let backend = self.backend;
        Err(Error::unsupported(format!(
            "a grant of the {backend} backend cannot be adopted: it ends with its {dies_with}"
        )))
    }

    /// Refuses a deadlock policy the backend cannot follow.
    pub fn check_on_deadlock(&self, policy: OnDeadlock) -> Result<()> {
        let needs = match policy {
            OnDeadlock::Detect if !self.detect => {
                "an engine that sees which party waits for which; use wait-die, or a set"
            }
            OnDeadlock::WaitDie | OnDeadlock::WoundWait if self.queue == Queue::Polling => {
                "a queue; take the locks as a set, or wait for a limited time"
            }
            // Where locks hang on connections, ending one that is somebody else's takes rights that few have.
            OnDeadlock::WoundWait
                if self.revoke == Revoke::Cooperative || self.liveness == Liveness::Process =>
            {
                "an engine that can take a lock away from its holder; use wait-die"
            }
            _ => return Ok(()),
        };
        Err(Error::unsupported(format!("the {} backend has no {policy}, which needs {needs}", self.backend)))
    }

    /// Refuses a lock-delay the backend cannot keep.
    pub fn check_lock_delay(&self, delay: Duration) -> Result<()> {
        if delay.is_zero() || self.lock_delay {
            return Ok(());
        }
        let backend = self.backend;
        Err(Error::unsupported(format!(
            "the {backend} backend has no lock-delay; leave it out, or use another engine"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_never_rounded() {
        let secs = Duration::from_secs;
        let range = TtlRange { min: secs(2), max: secs(10), step: secs(1) };
        assert!(range.contains(secs(2)) && range.contains(secs(10)));
        assert!(!range.contains(secs(1)) && !range.contains(secs(11)));
        assert!(!range.contains(Duration::from_millis(2500)));
        assert_eq!(range.to_string(), "2s to 10s in steps of 1s");
    }
}
