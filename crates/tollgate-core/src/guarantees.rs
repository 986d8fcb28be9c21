//! What a backend's promises rest on, fault by fault, as data that users can insist on.

use std::fmt;

use crate::capabilities::{Capabilities, Liveness, Queue};
use crate::error::{Error, Result};

/// Something that goes wrong.
///
/// ```
/// for fault in tollgate::Fault::ALL {
///     println!("what if {fault:?}?");
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The holder is killed.
    HolderKilled,
    /// The holder is stopped for longer than its ttl and then goes on.
    HolderPaused,
    /// Renewals do not get through.
    RenewalsFail,
    /// The engine's wall clock jumps forward.
    ClockForward,
    /// The engine's wall clock jumps back.
    ClockBack,
    /// Clocks run at slightly different speeds.
    ClockDrift,
    /// A reply is lost, or the network is cut either way.
    ReplyLost,
    /// A request arrives twice or late.
    RequestRepeated,
    /// The engine is killed and comes back with its data.
    EngineRestarted,
    /// The engine comes back empty.
    EngineEmptied,
    /// A replica takes over that may lag behind.
    FailedOver,
    /// The engine is restored from a backup.
    Restored,
    /// The holder's virtual machine is paused or migrated, which no clock sees.
    MachinePaused,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 13] = [
        Self::HolderKilled,
        Self::HolderPaused,
        Self::RenewalsFail,
        Self::ClockForward,
        Self::ClockBack,
        Self::ClockDrift,
        Self::ReplyLost,
        Self::RequestRepeated,
        Self::EngineRestarted,
        Self::EngineEmptied,
        Self::FailedOver,
        Self::Restored,
        Self::MachinePaused,
    ];

    /// The fault in one word, for machines.
    ///
    /// ```
    /// assert_eq!(tollgate::Fault::HolderPaused.word(), "holder_paused");
    /// ```
    pub fn word(self) -> &'static str {
        match self {
            Self::HolderKilled => "holder_killed",
            Self::HolderPaused => "holder_paused",
            Self::RenewalsFail => "renewals_fail",
            Self::ClockForward => "clock_forward",
            Self::ClockBack => "clock_back",
            Self::ClockDrift => "clock_drift",
            Self::ReplyLost => "reply_lost",
            Self::RequestRepeated => "request_repeated",
            Self::EngineRestarted => "engine_restarted",
            Self::EngineEmptied => "engine_emptied",
            Self::FailedOver => "failed_over",
            Self::Restored => "restored",
            Self::MachinePaused => "machine_paused",
        }
    }
}

/// What a promise rests on under a fault.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-basis").await?;
/// use tollgate::Fault;
/// use tollgate::guarantees::Basis;
///
/// let paused = locks.capabilities().guarantees.under(Fault::HolderPaused);
/// assert_eq!((paused.exclusion, paused.tokens), (Basis::Broken, Basis::Kept));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// It is kept.
    Kept,
    /// It is kept as long as clocks run at nearly the same speed, or tell nearly the same time.
    Time,
    /// It may be broken.
    Broken,
    /// The fault cannot happen to this backend.
    Absent,
}

impl Basis {
    fn is_kept(self) -> bool {
        matches!(self, Self::Kept | Self::Absent)
    }
}

/// What holds under each fault.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-guarantees").await?;
/// for row in locks.capabilities().guarantees.rows() {
///     println!("{:?}: exclusion {:?}, tokens {:?}", row.fault, row.exclusion, row.tokens);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarantees {
    rows: [Row; Fault::ALL.len()],
}

/// What holds under one fault.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-row").await?;
/// use tollgate::Fault;
///
/// let row = locks.capabilities().guarantees.under(Fault::ReplyLost);
/// assert_eq!(row.fault, Fault::ReplyLost);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which fault.
    pub fault: Fault,
    /// At most one holder (or as many as the mode allows).
    pub exclusion: Basis,
    /// Tokens are unique and rise.
    pub tokens: Basis,
}

impl Guarantees {
    /// The guarantees that `basis` gives as (exclusion, tokens) for each fault.
    pub fn new(basis: impl Fn(Fault) -> (Basis, Basis)) -> Self {
        Self {
            rows: Fault::ALL.map(|fault| {
                let (exclusion, tokens) = basis(fault);
                Row { fault, exclusion, tokens }
            }),
        }
    }

    /// All rows, in the order of [`Fault::ALL`].
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What holds under `fault`.
    pub fn under(&self, fault: Fault) -> Row {
        self.rows[fault as usize]
    }
}

/// Something a user can insist on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tollgate::Result<()> {
/// let locks = tollgate::connect("memory:doc-guarantee").await?;
/// use tollgate::Guarantee;
///
/// locks.require(Guarantee::Fifo)?;
/// locks.require(Guarantee::Expiry)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// No two incompatible holders under this fault, not even resting on time.
    Exclusion(Fault),
    /// No two incompatible holders under this fault, as long as clocks behave.
    ExclusionByTime(Fault),
    /// Tokens stay unique and rise under this fault, not even resting on time.
    Tokens(Fault),
    /// Those who wait are served in order.
    Fifo,
    /// A lock whose holder is gone comes free without anybody's help, after its ttl. Engines that look for ended sessions only
    /// every so often take that much longer; their pages say how much.
    Expiry,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusion(fault) => write!(f, "exclusion under {fault:?}"),
            Self::ExclusionByTime(fault) => write!(f, "exclusion under {fault:?}, assuming correct clocks"),
            Self::Tokens(fault) => write!(f, "unique and increasing tokens under {fault:?}"),
            Self::Fifo => f.write_str("first come, first served"),
            Self::Expiry => f.write_str("expiry of locks whose holder hangs"),
        }
    }
}

impl Capabilities {
    /// Fails with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) unless the backend gives `guarantee`.
    pub fn require(&self, guarantee: Guarantee) -> Result<()> {
        let (given, because) = match guarantee {
            Guarantee::Exclusion(fault) => {
                let basis = self.guarantees.under(fault).exclusion;
                (basis.is_kept(), format!("{basis:?}"))
            }
            Guarantee::ExclusionByTime(fault) => {
                let basis = self.guarantees.under(fault).exclusion;
                (basis.is_kept() || basis == Basis::Time, format!("{basis:?}"))
            }
            Guarantee::Tokens(fault) => {
                let basis = self.guarantees.under(fault).tokens;
                (basis.is_kept(), format!("{basis:?}"))
            }
            Guarantee::Fifo => (self.queue == Queue::Fifo, format!("{:?}", self.queue)),
            Guarantee::Expiry => (self.liveness != Liveness::Process, format!("{:?}", self.liveness)),
        };
        if given {
            return Ok(());
        }
        let backend = self.backend;
        Err(Error::unsupported(format!(
            "the {backend} backend does not guarantee {guarantee} ({because}); use another engine, or fence the resource"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_finds_its_own_row() {
        let guarantees = Guarantees::new(|_| (Basis::Kept, Basis::Kept));
        for fault in Fault::ALL {
            assert_eq!(guarantees.under(fault).fault, fault);
        }
    }
}
