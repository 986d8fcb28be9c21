//! What this backend declares.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// One Redis, whatever it does with its disk: what depends on that is told by `doctor`.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        backend: "redis",
        scope: Scope::Network,
        modes: Modes::ALL,
        liveness: Liveness::Lease,
        queue: Queue::Fifo,
        ttl: TtlRange {
            min: Duration::from_millis(100),
            max: Duration::from_secs(24 * 3600),
            step: Duration::ZERO,
        },
        adopt: Adopt::Any,
        revoke: Revoke::AskOrForce,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::HolderKilled | Fault::ReplyLost | Fault::RequestRepeated => (Basis::Kept, Basis::Kept),
            Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            Fault::RenewalsFail | Fault::ClockDrift => (Basis::Time, Basis::Kept),
            // A ttl is counted on the server's wall clock; tokens only ever rise.
            Fault::ClockForward => (Basis::Broken, Basis::Kept),
            Fault::ClockBack => (Basis::Kept, Basis::Kept),
            // The last second may be gone from its disk, or everything; tokens go on from the clock.
            Fault::EngineRestarted | Fault::EngineEmptied | Fault::FailedOver | Fault::Restored => {
                (Basis::Broken, Basis::Time)
            }
        }),
    }
}
