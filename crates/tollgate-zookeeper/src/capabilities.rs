//! What this backend declares.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// How many ticks a session must last, so that what proves it alive fits in.
pub(crate) const TICKS: u32 = 6;

/// A ZooKeeper of one server or several.
pub(crate) fn capabilities(ttl: TtlRange) -> Capabilities {
    Capabilities {
        backend: "zookeeper",
        scope: Scope::Network,
        modes: Modes::ALL,
        liveness: Liveness::Session,
        queue: Queue::Fifo,
        ttl,
        adopt: Adopt::Never,
        revoke: Revoke::AskOrForce,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            // Requests of a session are numbered, and a server that sees one twice is left.
            Fault::HolderKilled | Fault::RequestRepeated | Fault::EngineRestarted => {
                (Basis::Kept, Basis::Kept)
            }
            // Sessions are counted on the monotonic clock of the leader.
            Fault::ClockForward | Fault::ClockBack => (Basis::Kept, Basis::Kept),
            Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            // A server that is cut off from its leader answers for a while.
            Fault::RenewalsFail | Fault::ClockDrift | Fault::ReplyLost | Fault::FailedOver => {
                (Basis::Time, Basis::Kept)
            }
            // One server of several comes back empty and learns from the others; a whole ensemble that does has forgotten
            // all, as one restored from a backup has what came after.
            Fault::EngineEmptied | Fault::Restored => (Basis::Broken, Basis::Broken),
        }),
    }
}

/// The ttls that can be had where ZooKeeper's own sessions last from `shortest` to `longest`.
pub(crate) fn ttls(shortest: Duration, longest: Duration, tick: Duration) -> TtlRange {
    let min = shortest.max(tick * TICKS);
    TtlRange { min, max: longest.max(min), step: Duration::ZERO }
}
