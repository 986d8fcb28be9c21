//! `POST /v1/keep`: renew all grants of a process and keep the places of all its claims.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_types::{LockName, Token};

use crate::acquire::is_zero;
use crate::check;
use crate::limits::MAX_ITEMS;
use crate::loss::LossCause;
use crate::open::Open;
use crate::owner::Owner;
use crate::problem::Problem;
use crate::request::{Request, drop_grant_members};

/// A request that extends what is held and keeps the queue position of what waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The claims: at most 256.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 256))]
    pub items: Vec<KeepItem>,
    /// How long this call may stay open, at most 55 s. It is answered at the first change.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(maximum = 55_000, default = 0))]
    pub wait_ms: u64,
}

/// A claim to keep. It may be a whole [`Grant`](crate::Grant) as it was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeepItem {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// The owner of the claim, as it was answered.
    pub owner: Owner,
    /// How long the grant lives from now on; as long as before if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub ttl_ms: Option<u64>,
}

/// What became of each claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Kept {
    /// As many as were asked for, in the same order.
    pub items: Vec<KeptItem>,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeptItem {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// One of those of the schema `KeepState`, to which later servers may add.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: Open<KeepState>,
    /// `held`: the owner to go on with, if the claim was granted meanwhile and that owner is longer
    /// than the one of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// `held`: the fencing token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::Token>))]
    pub token: Option<Token>,
    /// `held`: how long the client may rely on it, counted from the moment it sent this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_ms: Option<u64>,
    /// `waiting`: the number of claims ahead, where the engine tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// `lost`: why, one of those of the schema `LossCause`, to which later servers may add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<Open<LossCause>>,
}

/// The state of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeepState {
    /// It is granted, and was extended.
    Held,
    /// It is in the queue, and keeps its position.
    Waiting,
    /// It is not there any more.
    Lost,
}

impl Request for Keep {
    fn check(&self) -> Result<(), Problem> {
        if self.items.is_empty() || self.items.len() > MAX_ITEMS {
            let rule =
                format!("must have 1 to {MAX_ITEMS} claims, not {}; use several calls", self.items.len());
            return Err(Problem::invalid("items", rule));
        }
        for (at, item) in self.items.iter().enumerate() {
            item.ttl_ms.map_or(Ok(()), |ttl| check::ttl(&format!("items[{at}].ttl_ms"), ttl))?;
        }
        check::open_for("wait_ms", self.wait_ms)
    }

    fn prepare(body: &mut Value) {
        for item in body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            drop_grant_members(item, &["name", "owner", "ttl_ms"]);
        }
    }
}
