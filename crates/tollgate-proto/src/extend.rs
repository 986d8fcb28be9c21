//! `POST /v1/extend`: renew one grant. It is answered with the [`Grant`](crate::Grant).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_types::LockName;

use crate::check;
use crate::owner::Owner;
use crate::problem::Problem;
use crate::request::{Request, drop_grant_members};

/// A request that renews a grant. It may be a whole [`Grant`](crate::Grant) as it was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// The owner of the grant, as it was answered.
    pub owner: Owner,
    /// How long the grant lives from now on; as long as before if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub ttl_ms: Option<u64>,
    /// Replaces what people see who look at the lock; it stays as it is if this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<BTreeMap<String, String>>,
}

impl Request for Extend {
    fn check(&self) -> Result<(), Problem> {
        self.ttl_ms.map_or(Ok(()), |ttl| check::ttl("ttl_ms", ttl))?;
        self.meta.as_ref().map_or(Ok(()), check::meta)
    }

    fn prepare(body: &mut Value) {
        drop_grant_members(body, &["name", "owner", "ttl_ms"]);
    }
}
