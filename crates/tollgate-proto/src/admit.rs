//! `POST /v1/admit`: ask the server, which keeps the mark of a resource, whether a token is stale.

use serde::{Deserialize, Serialize};
use tollgate_types::{LockName, Token};

use crate::acquire::is_default;
use crate::mode::ModeKind;
use crate::problem::Problem;
use crate::request::Request;

/// A request of a holder, or of the resource on its behalf, to be let in. It is answered with
/// [`Admitted`], or with a problem of the kind `stale` that has both numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Admit {
    /// The resource, under the rules for lock names.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub resource: LockName,
    /// The holder's fencing token.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::Token))]
    pub token: Token,
    /// How the lock is held: only an exclusive holder raises the mark; `exclusive` if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ModeKind,
}

/// The holder was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Admitted {
    /// The largest token that was admitted exclusively; `null` if there was none yet.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, required))]
    pub mark: Option<Token>,
}

impl Request for Admit {
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }
}
