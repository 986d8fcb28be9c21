//! What the promises of the server's own engine rest on, fault by fault.

use tollgate_core::Fault;
use tollgate_core::guarantees::{Basis, Guarantees};

/// The guarantees, the same for both durabilities: after a crash `sync` knows every grant, and
/// `grace` waits until every grant is over.
pub(crate) fn guarantees() -> Guarantees {
    Guarantees::new(|fault| match fault {
        // The holder wakes up beside the next one, and only a fence refuses it.
        Fault::HolderPaused | Fault::MachinePaused => (Basis::Broken, Basis::Kept),
        // The engine counts on a monotonic clock, and the holder on its own.
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
