//! What sort of problem an answer reports, and the HTTP status of each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a call was not done. As the `type` of a problem it is `urn:tollgate:problem:KIND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ProblemKind {
    /// 400: the body or the query cannot be read at all.
    #[serde(rename = "urn:tollgate:problem:malformed")]
    Malformed,
    /// 401: an access key or certificate is missing, or is not known.
    #[serde(rename = "urn:tollgate:problem:unauthorized")]
    Unauthorized,
    /// 403: the access rule does not allow this, or the request came from a foreign web page.
    #[serde(rename = "urn:tollgate:problem:forbidden")]
    Forbidden,
    /// 404: there is no such path, or no grant with the token.
    #[serde(rename = "urn:tollgate:problem:not_found")]
    NotFound,
    /// 405: the path exists, but not with this method.
    #[serde(rename = "urn:tollgate:problem:method_not_allowed")]
    MethodNotAllowed,
    /// 409: the lock is held by others, and the claim has left the queue.
    #[serde(rename = "urn:tollgate:problem:busy")]
    Busy,
    /// 409: the claim keeps its queue position; repeat the call with the same owner.
    #[serde(rename = "urn:tollgate:problem:waiting")]
    Waiting,
    /// 409: waiting might never have ended, and the claim was withdrawn.
    #[serde(rename = "urn:tollgate:problem:deadlock")]
    Deadlock,
    /// 409: a repeat of this call took the claim over, and gets the answer.
    #[serde(rename = "urn:tollgate:problem:moved")]
    Moved,
    /// 410: the claim was granted or waited, and does not any more.
    #[serde(rename = "urn:tollgate:problem:lost")]
    Lost,
    /// 412: a larger token was admitted before.
    #[serde(rename = "urn:tollgate:problem:stale")]
    Stale,
    /// 413: the body is too long.
    #[serde(rename = "urn:tollgate:problem:too_large")]
    TooLarge,
    /// 422: a member is unknown, missing, or has a value that cannot be.
    #[serde(rename = "urn:tollgate:problem:invalid")]
    Invalid,
    /// 422: the engine behind this server cannot do this.
    #[serde(rename = "urn:tollgate:problem:unsupported")]
    Unsupported,
    /// 428: the call needs a condition, such as a header, that the request does not have.
    #[serde(rename = "urn:tollgate:problem:precondition_required")]
    PreconditionRequired,
    /// 429: the client, or its access rule, is over a limit.
    #[serde(rename = "urn:tollgate:problem:too_many_requests")]
    TooManyRequests,
    /// 503: the server cannot do this now. Nothing was changed.
    #[serde(rename = "urn:tollgate:problem:unavailable")]
    Unavailable,
    /// 504: the engine did not answer, so that this may have been done or not.
    #[serde(rename = "urn:tollgate:problem:indeterminate")]
    Indeterminate,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [Self; 18] = [
        Self::Malformed,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Busy,
        Self::Waiting,
        Self::Deadlock,
        Self::Moved,
        Self::Lost,
        Self::Stale,
        Self::TooLarge,
        Self::Invalid,
        Self::Unsupported,
        Self::PreconditionRequired,
        Self::TooManyRequests,
        Self::Unavailable,
        Self::Indeterminate,
    ];

    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Busy | Self::Waiting | Self::Deadlock | Self::Moved => 409,
            Self::Lost => 410,
            Self::Stale => 412,
            Self::TooLarge => 413,
            Self::Invalid | Self::Unsupported => 422,
            Self::PreconditionRequired => 428,
            Self::TooManyRequests => 429,
            Self::Unavailable => 503,
            Self::Indeterminate => 504,
        }
    }

    /// One word, for labels: the end of the `type`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Busy => "busy",
            Self::Waiting => "waiting",
            Self::Deadlock => "deadlock",
            Self::Moved => "moved",
            Self::Lost => "lost",
            Self::Stale => "stale",
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::PreconditionRequired => "precondition_required",
            Self::TooManyRequests => "too_many_requests",
            Self::Unavailable => "unavailable",
            Self::Indeterminate => "indeterminate",
        }
    }

    /// The `title`: the same for every problem of this kind.
    pub fn title(self) -> &'static str {
        match self {
            Self::Malformed => "The request cannot be read",
            Self::Unauthorized => "An access key is needed",
            Self::Forbidden => "This is not allowed",
            Self::NotFound => "There is no such thing",
            Self::MethodNotAllowed => "The method is not allowed here",
            Self::Busy => "The lock is busy",
            Self::Waiting => "The claim is still waiting",
            Self::Deadlock => "Waiting might never end",
            Self::Moved => "A repeat of the call took over",
            Self::Lost => "The claim is lost",
            Self::Stale => "The token is stale",
            Self::TooLarge => "The body is too long",
            Self::Invalid => "A value is not valid",
            Self::Unsupported => "The engine cannot do this",
            Self::PreconditionRequired => "The request needs a condition",
            Self::TooManyRequests => "A limit is reached",
            Self::Unavailable => "The server cannot do this now",
            Self::Indeterminate => "The outcome is not known",
        }
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_ends_with_the_word() {
        for kind in ProblemKind::ALL {
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"urn:tollgate:problem:{kind}\""));
        }
    }

    #[test]
    fn no_kind_is_a_success_or_a_server_error_that_a_client_could_cause() {
        for kind in ProblemKind::ALL {
            assert!((400..600).contains(&kind.status()) && kind.status() != 500, "{kind}");
        }
    }
}
