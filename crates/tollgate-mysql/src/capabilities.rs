//! What this backend declares.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// One MySQL or MariaDB, with the settings it comes with: what others change is told by `doctor`.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        backend: "mysql",
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
        revoke: Revoke::Forced,
        lock_delay: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::HolderKilled | Fault::ReplyLost | Fault::RequestRepeated => (Basis::Kept, Basis::Kept),
            // A commit that was waited for is on the disk.
            Fault::EngineRestarted => (Basis::Kept, Basis::Kept),
            Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            Fault::RenewalsFail | Fault::ClockDrift => (Basis::Time, Basis::Kept),
            // Leases are counted on the server's wall clock.
            Fault::ClockForward => (Basis::Broken, Basis::Kept),
            Fault::ClockBack => (Basis::Kept, Basis::Kept),
            // Tokens go with the data, and back with it.
            Fault::EngineEmptied | Fault::FailedOver | Fault::Restored => (Basis::Broken, Basis::Broken),
        }),
    }
}
