//! What this backend declares.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// The shortest ttl: several answers have to come well within it.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);

/// A majority of independent Redises.
pub(crate) fn capabilities(max_ttl: Duration) -> Capabilities {
    Capabilities {
        backend: "redlock",
        scope: Scope::Network,
        modes: Modes::EXCLUSIVE,
        liveness: Liveness::Lease,
        queue: Queue::Polling,
        ttl: TtlRange { min: MIN_TTL, max: max_ttl, step: Duration::ZERO },
        adopt: Adopt::Any,
        revoke: Revoke::AskOrForce,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::HolderKilled | Fault::ReplyLost | Fault::RequestRepeated => (Basis::Kept, Basis::Kept),
            Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            // As long as the clocks of a majority do not jump, or run much faster than ours.
            Fault::RenewalsFail | Fault::ClockDrift | Fault::ClockForward => (Basis::Time, Basis::Kept),
            Fault::ClockBack | Fault::EngineRestarted => (Basis::Kept, Basis::Kept),
            // A node that forgot does not vote until every ttl has run out that it may have forgotten, and by then its
            // tokens are above all that the others know: both rest on that wait being as long as it says.
            Fault::EngineEmptied | Fault::Restored => (Basis::Time, Basis::Time),
            // Nodes are independent and have no replica that could take over.
            Fault::FailedOver => (Basis::Absent, Basis::Absent),
        }),
    }
}
