//! The answer to a call that was not done: `application/problem+json`, RFC 9457.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use tollgate_types::{Age, LockName, Token};

use crate::acquire::Waiting;
use crate::deadlocks::Waits;
use crate::look::Holder;
use crate::loss::LossCause;
use crate::open::Open;
use crate::owner::Owner;
use crate::problem_kind::ProblemKind;

/// Why a call was not done. It dereferences to its [members](ProblemMembers), and is one pointer
/// wide, so that a `Result` with it stays small.
///
/// ```
/// use tollgate_proto::{Problem, ProblemKind};
///
/// let mut problem = Problem::new(ProblemKind::Unavailable, "the disk is full; free some space");
/// problem.retry_after_ms = Some(1500);
/// assert_eq!(problem.status, 503);
/// assert_eq!(problem.retry_after_seconds(), Some(2));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{}", .0.detail)]
#[serde(transparent)]
pub struct Problem(Box<ProblemMembers>);

/// Why a call was not done: the members of a [`Problem`]. Those below `request_id` are there only
/// for the kinds that have them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Problem))]
pub struct ProblemMembers {
    /// The kind: one of those of the schema `ProblemKind`, to which later servers may add.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: Open<ProblemKind>,
    /// A few words, the same for every problem of the kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened and what to do, for people.
    pub detail: String,
    /// The id of the request, as in the header `Request-Id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// `malformed` and `invalid`: the member or parameter that is wrong, like `items[3].ttl_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The lock that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::LockName>))]
    pub name: Option<LockName>,
    /// `waiting`: the owner to repeat the call with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// `waiting`: the number of claims ahead in the queue, where the engine tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// `busy` and `waiting`: the holders of the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<Holder>>,
    /// `busy` and `waiting`: the number of claims in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// `busy`, `waiting`, `too_many_requests` and `unavailable`: when a new call may have better
    /// luck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// `busy`, `waiting` and `deadlock`: the age of the claim's party, to be sent with its next
    /// claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub party_age: Option<Age>,
    /// `deadlock`: the circle, where there is one: each waits for a lock that the next one is in
    /// the way of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Vec<Waits>>,
    /// `lost`: why, one of those of the schema `LossCause`, to which later servers may add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<Open<LossCause>>,
    /// `stale`: the token that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::Token>))]
    pub token: Option<Token>,
    /// `stale`: the largest token that was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::Token>))]
    pub mark: Option<Token>,
    /// `too_many_requests`, `too_large` and `unavailable`: the name of the limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

impl Problem {
    /// The media type of the answer.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A problem with a sentence that says what to do.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemMembers {
            kind: Open::Known(kind),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
            request_id: None,
            member: None,
            name: None,
            owner: None,
            ahead: None,
            holders: None,
            waiting: None,
            retry_after_ms: None,
            party_age: None,
            cycle: None,
            cause: None,
            token: None,
            mark: None,
            limit: None,
        }))
    }

    /// 422 about one member: `rule` goes on after the member's name.
    pub fn invalid(member: impl Into<String>, rule: impl std::fmt::Display) -> Self {
        let member = member.into();
        let mut problem = Self::new(ProblemKind::Invalid, format!("`{member}` {rule}"));
        problem.member = Some(member);
        problem
    }

    /// 412, with both numbers. `mark` is `None` where the resource compares the lock itself and
    /// keeps no mark.
    pub fn stale(token: Token, mark: Option<Token>) -> Self {
        let detail = match mark {
            Some(mark) => {
                format!("the token {token} is stale, {mark} was admitted before; take the lock again")
            }
            None => format!("the token {token} is not held any more; take the lock again"),
        };
        let mut problem = Self::new(ProblemKind::Stale, detail);
        (problem.token, problem.mark) = (Some(token), mark);
        problem
    }

    /// 410, and why.
    pub fn lost(cause: LossCause, detail: impl Into<String>) -> Self {
        let mut problem = Self::new(ProblemKind::Lost, detail);
        problem.cause = Some(cause.into());
        problem
    }

    /// 409 for a claim that keeps its queue position.
    pub fn waiting(waiting: Waiting) -> Self {
        let detail = "the claim keeps its queue position; repeat the call with this owner to go on waiting";
        let mut problem = Self::new(ProblemKind::Waiting, detail);
        (problem.owner, problem.ahead) = (Some(waiting.owner), waiting.ahead);
        problem
    }

    /// The queue position that a problem of the kind `waiting` tells; `None` for every other kind.
    pub fn as_waiting(&self) -> Option<Waiting> {
        if self.kind.known() != Some(ProblemKind::Waiting) {
            return None;
        }
        Some(Waiting { owner: self.owner.clone()?, ahead: self.ahead })
    }

    /// The value of the header `Retry-After`: whole seconds, rounded up.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after_ms.map(|ms| ms.div_ceil(1000))
    }
}

impl Deref for Problem {
    type Target = ProblemMembers;
    fn deref(&self) -> &ProblemMembers {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut ProblemMembers {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_a_later_server_is_read() {
        let json = r#"{"type":"urn:tollgate:problem:asleep","title":"t","status":418,"detail":"d","new":1}"#;
        let problem: Problem = serde_json::from_str(json).unwrap();
        assert_eq!(problem.kind, Open::Other("urn:tollgate:problem:asleep".into()));
        assert_eq!((problem.status, problem.to_string().as_str()), (418, "d"));
    }

    #[test]
    fn the_numbers_of_a_refusal_are_members() {
        let token = |number| Token::new(number).unwrap();
        let problem = Problem::stale(token(7), Some(token(9)));
        assert_eq!((problem.token, problem.mark, problem.status), (Some(token(7)), Some(token(9)), 412));
        assert!(problem.detail.contains('7') && problem.detail.contains('9'), "{problem}");
    }

    #[test]
    fn only_a_waiting_claim_has_a_queue_position() {
        let waiting = Waiting { owner: tollgate_types::OwnerId::from_bits(1).into(), ahead: Some(2) };
        assert_eq!(Problem::waiting(waiting.clone()).as_waiting(), Some(waiting.clone()));
        let mut busy = Problem::new(ProblemKind::Busy, "");
        busy.owner = Some(waiting.owner);
        assert_eq!(busy.as_waiting(), None);
    }
}
