//! `POST /v1/break`: take a lock from its holder, as an operator does.

use serde::{Deserialize, Serialize};
use tollgate_types::{LockName, Token};

use crate::acquire::is_default;
use crate::problem::Problem;
use crate::request::Request;

/// A request to break the lock of one holder. It is a problem of the kind `not_found` if no grant
/// has the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
    /// The holder's fencing token, so that a later holder is not hit.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::Token))]
    pub token: Token,
    /// Whether the lock is handed on at once, while the holder may still be at work. Otherwise the
    /// holder is asked to leave, and is not renewed any more.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "openapi", schema(default = false))]
    pub force: bool,
}

/// How breaking a lock ended: one of the two is `true`, and the other is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Broken {
    /// The holder is out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revoked: bool,
    /// The holder was asked to leave and has not left yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pending: bool,
}

impl Broken {
    /// The holder is out.
    pub const REVOKED: Self = Self { revoked: true, pending: false };
    /// The holder was asked to leave and has not left yet.
    pub const PENDING: Self = Self { revoked: false, pending: true };
}

impl Request for Break {
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }
}
