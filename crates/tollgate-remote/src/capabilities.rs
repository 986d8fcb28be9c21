//! What the server can do.

use std::time::Duration;

use tollgate_core::capabilities::{Adopt, Liveness, Modes, Queue, Revoke, Scope, TtlRange};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Capabilities, Fault, Guarantees, LockName};

/// The shortest time to live: what is left of a shorter one after the way there and back is not
/// worth having.
const SHORTEST: Duration = Duration::from_millis(100);

/// The capabilities, with the longest time to live that the server takes.
pub(crate) fn capabilities(longest: Duration) -> Capabilities {
    Capabilities {
        backend: "server",
        scope: Scope::Network,
        modes: Modes::ALL,
        liveness: Liveness::Lease,
        queue: Queue::Fifo,
        ttl: TtlRange { min: SHORTEST, max: longest, step: Duration::ZERO },
        adopt: Adopt::Any,
        revoke: Revoke::AskOrForce,
        lock_delay: true,
        detect: true,
        longest_name: LockName::MAX_BYTES,
        guarantees: guarantees(),
    }
}

/// The same for both durabilities: after a crash `sync` knows every grant, and `grace` waits until
/// every grant is over, on a clock that a suspend does not stop.
fn guarantees() -> Guarantees {
    Guarantees::new(|fault| match fault {
        // The holder wakes up beside the next one, and only a fence refuses it.
        Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
        // The server counts on a monotonic clock, and the holder on its own.
        Fault::RenewalsFail | Fault::ClockDrift => (Basis::Time, Basis::Kept),
        Fault::HolderKilled
        | Fault::ClockForward
        | Fault::ClockBack
        | Fault::ReplyLost
        | Fault::RequestRepeated
        | Fault::EngineRestarted => (Basis::Kept, Basis::Kept),
        // Without its file, or with an old copy of it, the server knows no grant and no token of
        // the time since. After a restore `--token-floor` keeps both promises.
        Fault::EngineEmptied | Fault::Restored => (Basis::Broken, Basis::Broken),
        // One server has no replica.
        Fault::FailedOver => (Basis::Absent, Basis::Absent),
    })
}
