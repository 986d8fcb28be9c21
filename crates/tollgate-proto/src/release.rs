//! `POST /v1/release` and `/v1/withdraw`: give a grant back, or remove a claim in any state.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_types::LockName;

use crate::check;
use crate::owner::Owner;
use crate::problem::Problem;
use crate::request::{Request, drop_grant_members};

/// A request that gives a lock, or a set of locks, back. It may be a whole [`Grant`](crate::Grant)
/// as it was answered. Exactly one of `name` and `names` is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::LockName>))]
    pub name: Option<LockName>,
    /// The locks of a set: at most 64, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<Vec<crate::openapi::words::LockName>>, min_items = 1, max_items = 64)
    )]
    pub names: Option<Vec<LockName>>,
    /// The owner of the grant, as it was answered.
    pub owner: Owner,
}

/// A request that makes sure that nothing of a claim is left, whether it waits, was granted
/// meanwhile, or never arrived. It may be a whole [`Grant`](crate::Grant). Exactly one of `name`
/// and `names` is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Withdraw {
    /// The lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::LockName>))]
    pub name: Option<LockName>,
    /// The locks of a set: at most 64, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<Vec<crate::openapi::words::LockName>>, min_items = 1, max_items = 64)
    )]
    pub names: Option<Vec<LockName>>,
    /// The owner of the claim: as it was answered, or as the client proposed it.
    pub owner: Owner,
}

/// What a release or a withdrawal did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Released {
    /// Whether a grant ended: always after a release, and after a withdrawal if the claim had been
    /// granted.
    pub released: bool,
    /// Whether an earlier call of the same owner had done it already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// The names of a request that has either a name or names.
fn names<'a>(name: Option<&'a LockName>, names: Option<&'a [LockName]>) -> Result<&'a [LockName], Problem> {
    match (name, names) {
        (Some(name), None) => Ok(std::slice::from_ref(name)),
        (None, Some(names)) => check::names(names).map(|()| names),
        (None, None) => {
            Err(Problem::invalid("name", "is missing; say which lock, or which locks in `names`"))
        }
        (Some(_), Some(_)) => Err(Problem::invalid("names", "is there beside `name`; leave one of them out")),
    }
}

impl Release {
    /// The names, in the order of the request.
    pub fn names(&self) -> Result<&[LockName], Problem> {
        names(self.name.as_ref(), self.names.as_deref())
    }
}

impl Withdraw {
    /// The names, in the order of the request.
    pub fn names(&self) -> Result<&[LockName], Problem> {
        names(self.name.as_ref(), self.names.as_deref())
    }
}

impl Request for Release {
    fn check(&self) -> Result<(), Problem> {
        self.names().map(drop)
    }

    fn prepare(body: &mut Value) {
        drop_grant_members(body, &["name", "owner"]);
    }
}

impl Request for Withdraw {
    fn check(&self) -> Result<(), Problem> {
        self.names().map(drop)
    }

    fn prepare(body: &mut Value) {
        drop_grant_members(body, &["name", "owner"]);
    }
}
