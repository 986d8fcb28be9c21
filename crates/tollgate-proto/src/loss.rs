//! Why a grant ended without a release by its holder.

use serde::{Deserialize, Serialize};

/// Why the server no longer has a grant or a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LossCause {
    /// Its ttl passed without a renewal, or a waiting claim was not repeated in time.
    Expired,
    /// The server does not know it, and cannot tell why.
    Gone,
    /// An operator, or an older party, broke the lock.
    Revoked,
    /// The session or connection that it hung on ended.
    SessionEnded,
    /// It was released or withdrawn.
    Released,
}
