//! What this backend declares.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// Everything the kernel's locks can do. A ttl is taken and means nothing: nothing expires.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        backend: "file",
        scope: Scope::Host,
        modes: Modes::ALL,
        liveness: Liveness::Process,
        queue: Queue::Fifo,
        ttl: TtlRange {
            min: Duration::from_millis(10),
            max: Duration::from_secs(365 * 24 * 60 * 60),
            step: Duration::ZERO,
        },
        adopt: Adopt::Never,
        revoke: Revoke::Cooperative,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::EngineEmptied | Fault::Restored => (Basis::Broken, Basis::Broken),
            Fault::ReplyLost | Fault::RequestRepeated | Fault::FailedOver => (Basis::Absent, Basis::Absent),
            Fault::HolderKilled
            | Fault::HolderPaused
            | Fault::RenewalsFail
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::ClockDrift
            | Fault::EngineRestarted
            | Fault::MachinePaused => (Basis::Kept, Basis::Kept),
        }),
    }
}
