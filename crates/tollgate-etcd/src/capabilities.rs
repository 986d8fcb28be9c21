//! What this backend declares.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// The ttls that an etcd takes whose shortest lease is `min`.
pub(crate) fn ttl_from(min: Duration) -> TtlRange {
    TtlRange { min, max: Duration::from_secs(24 * 3600), step: Duration::from_secs(1) }
}

/// An etcd, of one member or several.
pub(crate) fn capabilities(ttl: TtlRange) -> Capabilities {
    Capabilities {
        backend: "etcd",
        scope: Scope::Network,
        modes: Modes::ALL,
        liveness: Liveness::Session,
        queue: Queue::Fifo,
        ttl,
        adopt: Adopt::Standalone,
        revoke: Revoke::AskOrForce,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            // Nothing on the way can repeat a request of HTTP/2; what we repeat ourselves, and what is late, is kept out.
            Fault::HolderKilled | Fault::RequestRepeated | Fault::EngineRestarted => {
                (Basis::Kept, Basis::Kept)
            }
            // Leases are counted on the monotonic clock of the leader.
            Fault::ClockForward | Fault::ClockBack => (Basis::Kept, Basis::Kept),
            Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            // The deadline counts on the client's clock, and the end of the lease on the leader's.
            Fault::RenewalsFail | Fault::ClockDrift | Fault::ReplyLost | Fault::FailedOver => {
                (Basis::Time, Basis::Kept)
            }
            // One member of several comes back empty and learns from the others; a whole cluster that does has forgotten
            // all, as one restored from a backup has what came after.
            Fault::EngineEmptied | Fault::Restored => (Basis::Broken, Basis::Broken),
        }),
    }
}
