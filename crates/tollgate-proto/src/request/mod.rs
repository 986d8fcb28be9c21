//! Reads requests strictly; a refusal says which member is wrong and what is allowed.

mod query;
mod reader;
mod tree;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::query::parse_query;
use self::reader::{Reader, Wrong};
use self::tree::Tree;
use crate::acquire::GRANT_MEMBERS;
use crate::problem::Problem;
use crate::problem_kind::ProblemKind;

/// A message that a client sends.
pub trait Request: DeserializeOwned {
    /// The rules that the type itself cannot express: a problem of the kind `invalid` that says
    /// what to do. [`parse`] calls it; a front end that makes requests in another way calls it
    /// itself.
    fn check(&self) -> Result<(), Problem>;

    /// Drops what may be in the body beside the members of this type.
    #[doc(hidden)]
    fn prepare(_body: &mut Value) {}
}

/// Reads a request's body.
///
/// - What is not JSON is a problem of the kind `malformed` (400).
/// - JSON that is not this request (an unknown, missing or repeated member, a value that cannot be)
///   is a
///   problem of the kind `invalid` (422). It names the member and what is allowed, and does not repeat
///   the value, which may be a secret.
///
/// ```
/// use tollgate_proto::{Acquire, parse};
///
/// let acquire: Acquire = parse(br#"{"name": "orders/42"}"#)?;
/// assert_eq!((acquire.ttl_ms, acquire.wait_ms), (30_000, 0));
/// let problem = parse::<Acquire>(br#"{"name": "orders/42", "ttl": 5}"#).unwrap_err();
/// assert_eq!((problem.status, problem.member.as_deref()), (422, Some("ttl")));
/// # Ok::<(), tollgate_proto::Problem>(())
/// ```
pub fn parse<T: Request>(body: &[u8]) -> Result<T, Problem> {
    let Tree(mut tree) = serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            return Problem::new(ProblemKind::Invalid, format!("{error}; say it once"));
        }
        Problem::new(ProblemKind::Malformed, format!("the body is not JSON: {error}; send a JSON object"))
    })?;
    T::prepare(&mut tree);
    read(Reader::of_json(tree))
}

fn read<T: Request>(reader: Reader) -> Result<T, Problem> {
    let request = T::deserialize(reader).map_err(|Wrong { path, rule }| match path.is_empty() {
        true => Problem::new(ProblemKind::Invalid, format!("the request {rule}")),
        false => Problem::invalid(reader::shown(&path), rule),
    })?;
    request.check().map(|()| request)
}

/// Drops those members of a grant that a request does not take, so that a grant can be sent as it
/// was answered.
pub(crate) fn drop_grant_members(body: &mut Value, taken: &[&str]) {
    if let Some(members) = body.as_object_mut() {
        members.retain(|member, _| {
            taken.contains(&member.as_str()) || !GRANT_MEMBERS.contains(&member.as_str())
        });
    }
}
