//! What databases' locks can do, and what that rests on, with the settings that databases come with: what others change is
//! told by `doctor`.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// What a lock is in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A lease in tables.
    Lease,
    /// The database's own lock, which hangs on a connection.
    Session,
}

/// Leases in tables.
pub fn of_leases(backend: &'static str) -> Capabilities {
    Capabilities {
        backend,
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

/// The database's own locks, each of which hangs on a connection. A ttl is taken and means nothing: nothing expires.
pub fn of_sessions(backend: &'static str, modes: Modes) -> Capabilities {
    Capabilities {
        backend,
        scope: Scope::Network,
        modes,
        liveness: Liveness::Process,
        queue: Queue::Fifo,
        ttl: TtlRange {
            min: Duration::from_millis(10),
            max: Duration::from_secs(365 * 24 * 60 * 60),
            step: Duration::ZERO,
        },
        adopt: Adopt::Never,
        revoke: Revoke::AskOrForce,
        lock_delay: false,
        detect: false,
        longest_name: LockName::MAX_BYTES,
        guarantees: Guarantees::new(|fault| match fault {
            Fault::HolderKilled
            | Fault::HolderPaused
            | Fault::ClockForward
            | Fault::ClockBack
            | Fault::ClockDrift
            | Fault::ReplyLost
            | Fault::RequestRepeated => (Basis::Kept, Basis::Kept),
            // A holder that is cut off notices it within 5 s, and the server frees its lock much later.
            Fault::RenewalsFail => (Basis::Time, Basis::Kept),
            // The locks are gone with the server, and holders notice it some time later.
            Fault::EngineRestarted => (Basis::Broken, Basis::Kept),
            Fault::MachinePaused => (Basis::Broken, Basis::Kept),
            Fault::EngineEmptied | Fault::FailedOver | Fault::Restored => (Basis::Broken, Basis::Broken),
        }),
    }
}
