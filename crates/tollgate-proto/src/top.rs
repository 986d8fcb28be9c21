//! `GET /v1/top`: where to look first.

use serde::{Deserialize, Serialize};
use tollgate_types::LockName;

use crate::look::{Holder, Waiter};

/// The locks that stand out, each list with the most remarkable first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Top {
    /// The locks with the longest queues.
    pub contended: Vec<Contended>,
    /// The grants that have been held longest.
    pub longest_held: Vec<LongestHeld>,
    /// The claims that have waited longest.
    pub longest_waited: Vec<LongestWaited>,
}

/// A lock with a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Contended {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// The number of holders.
    pub holding: u64,
    /// The number of claims in the queue.
    pub waiting: u64,
    /// How long the first of them has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_wait_ms: Option<u64>,
}

/// A grant that has been held for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LongestHeld {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// Its holder.
    pub holder: Holder,
}

/// A claim that has waited for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LongestWaited {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// Its waiter.
    pub waiter: Waiter,
}
