//! `GET /v1/lock` and `/v1/locks`: holders and waiters, of one lock or page by page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_types::{LockName, Token};

use crate::acquire::{is_default, is_zero};
use crate::check;
use crate::limits::{DEFAULT_PAGE, MAX_PAGE};
use crate::mode::ModeKind;
use crate::open::Open;
use crate::problem::Problem;
use crate::request::Request;

/// A holder, in the same shape wherever one is shown. All members are always there; what is not
/// known is `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holder {
    /// The fencing token; `null` for a foreign client that holds the lock without one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, required))]
    pub token: Option<Token>,
    /// How the lock is shared, one of those of the schema `Mode`, to which later servers may add.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: Open<ModeKind>,
    /// How many may hold together; `null` unless the mode is `permit`.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub limit: Option<u32>,
    /// The access rule that let the holder in: the only member that the server has verified.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub by: Option<String>,
    /// The holder's host, as it said.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub host: Option<String>,
    /// The holder's process, as it said.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub pid: Option<u32>,
    /// How long it has held the lock.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub held_ms: Option<u64>,
    /// When the lock is taken away unless it is renewed; `null` where nothing expires.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_in_ms: Option<u64>,
    /// What the holder added.
    pub meta: BTreeMap<String, String>,
    /// The trace that the claim belongs to.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub traceparent: Option<String>,
}

/// A waiter: the members of a [`Holder`], without those that only a grant has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiter {
    /// How the lock would be shared, one of those of the schema `Mode`, to which later servers may
    /// add.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: Open<ModeKind>,
    /// How many may hold together; `null` unless the mode is `permit`.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub limit: Option<u32>,
    /// The access rule that let the waiter in: the only member that the server has verified.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub by: Option<String>,
    /// The waiter's host, as it said.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub host: Option<String>,
    /// The waiter's process, as it said.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub pid: Option<u32>,
    /// How long it has waited.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub waited_ms: Option<u64>,
    /// What the waiter added.
    pub meta: BTreeMap<String, String>,
    /// The trace that the claim belongs to.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub traceparent: Option<String>,
}

/// A lock. Both lists are empty when it is free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lock {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// The holders, in the order of their grants.
    pub holders: Vec<Holder>,
    /// The waiters, in the order of the queue where the engine has one.
    pub waiters: Vec<Waiter>,
}

/// A page of locks, in no order. A lock that is there throughout is on exactly one page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Locks {
    /// The locks that are held or waited for.
    pub locks: Vec<Lock>,
    /// The value of `after` for the next page; `null` on the last. Only the server reads it.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub next: Option<String>,
}

/// The parameters of `GET /v1/lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema, utoipa::IntoParams),
    into_params(parameter_in = Query)
)]
#[serde(deny_unknown_fields)]
pub struct LockQuery {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    #[cfg_attr(feature = "openapi", param(value_type = String, min_length = 1, max_length = 512))]
    pub name: LockName,
    /// With the header `If-None-Match`: how long to wait for a change, at most 55 s.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(maximum = 55_000, default = 0))]
    #[cfg_attr(feature = "openapi", param(maximum = 55_000, default = 0))]
    pub wait_ms: u64,
    /// Which changes count; `all` if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub watch: Watch,
}

/// Which changes of a lock are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Watch {
    /// Those of holders and waiters.
    #[default]
    All,
    /// Those of holders alone.
    Holders,
}

/// The parameters of `GET /v1/locks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema, utoipa::IntoParams),
    into_params(parameter_in = Query)
)]
#[serde(deny_unknown_fields)]
pub struct LocksQuery {
    /// Only locks whose names start with this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prefix: String,
    /// How many locks a page has at most, 1 to 1024.
    #[serde(default = "default_page", skip_serializing_if = "is_default_page")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1024, default = 256))]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1024, default = 256))]
    pub limit: u32,
    /// `next` of the page before; left out for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(nullable = false))]
    pub after: Option<String>,
}

fn default_page() -> u32 {
    DEFAULT_PAGE
}

fn is_default_page(limit: &u32) -> bool {
    *limit == DEFAULT_PAGE
}

impl Default for LocksQuery {
    fn default() -> Self {
        Self { prefix: String::new(), limit: DEFAULT_PAGE, after: None }
    }
}

impl Request for LockQuery {
    fn check(&self) -> Result<(), Problem> {
        check::open_for("wait_ms", self.wait_ms)
    }
}

impl Request for LocksQuery {
    fn check(&self) -> Result<(), Problem> {
        if (1..=MAX_PAGE).contains(&self.limit) {
            return Ok(());
        }
        Err(Problem::invalid(
            "limit",
            format!("must be 1 to {MAX_PAGE}; read the rest page by page with `after`"),
        ))
    }
}
