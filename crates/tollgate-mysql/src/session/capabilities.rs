//! What this style declares.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// What `GET_LOCK` can do. A ttl is taken and means nothing: nothing expires.
pub(super) fn capabilities() -> Capabilities {
    Capabilities {
        backend: "mysql-session",
        scope: Scope::Network,
        modes: Modes { shared: false, permit: false },
        liveness: Liveness::Process,
        queue: Queue::Fifo,
        ttl: TtlRange {
            min: Duration::from_millis(10),
            max: Duration::from_secs(365 * 24 * 60 * 60),
            step: Duration::ZERO,
        },
        adopt: Adopt::Never,
        revoke: Revoke::Forced,
        lock_delay: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::HolderKilled
            | Fault::HolderPaused
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::ClockDrift
            | Fault::ReplyLost
            | Fault::RequestRepeated => (Basis::Kept, Basis::Kept),
            // A holder that is cut off notices it within 5 s; the server much later.
            Fault::RenewalsFail => (Basis::Time, Basis::Kept),
            // The locks are gone with the server, and holders notice it some time later.
            Fault::EngineRestarted => (Basis::Broken, Basis::Kept),
            Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            Fault::EngineEmptied | Fault::FailedOver | Fault::Restored => (Basis::Broken, Basis::Broken),
        }),
    }
}
