//! What whoever is not let through is told: a status, a word for programs and a sentence for people.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use tollgate_core::{Error, ErrorKind, Stale, Token};

/// Says in one word what is wrong, in every answer that is ours and not the service's.
const FENCING_PROBLEM: HeaderName = HeaderName::from_static("fencing-problem");

/// Why a request was not let through, or was not answered.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// For programs.
    word: &'static str,
    detail: String,
    stale: Option<Stale>,
    retry: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, word: &'static str, detail: impl Into<String>) -> Self {
        Self { status, word, detail: detail.into(), stale: None, retry: false }
    }

    pub(crate) fn malformed(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    pub(crate) fn missing() -> Self {
        let detail = "this request changes something and shows no token; send the header Fencing-Token: TOKEN with that of \
                      your lock";
        Self::new(StatusCode::PRECONDITION_REQUIRED, "missing", detail)
    }

    /// Somebody older is still at work.
    pub(crate) fn busy() -> Self {
        let detail = "requests with an older token are not answered yet; nothing was forwarded, try again";
        Self { retry: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
    }

    /// What a gate said.
    pub(crate) fn of_gate(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Lost => {
                let stale = Stale::of(error).copied();
                Self { stale, ..Self::new(StatusCode::PRECONDITION_FAILED, "stale", error.message()) }
            }
            ErrorKind::InvalidArgument => Self::malformed(error.message()),
            _ => {
                tracing::warn!(target: "tollgate", %error, "the gate cannot be asked");
                // What is wrong with the store is told to those who run it, not to everybody.
                let detail =
                    "whether this token is stale cannot be found out now; nothing was forwarded, try again";
                Self { retry: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "gate", detail) }
            }
        }
    }

    /// A larger token came while the request was being sent.
    pub(crate) fn cut_off(error: &Error) -> Self {
        let problem = Self::of_gate(error);
        let detail = format!(
            "{}; the request was still being sent, and the service may have seen a part of it, or all",
            problem.detail
        );
        Self { detail, ..problem }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn word(&self) -> &'static str {
        self.word
    }

    /// As an answer, with `body` made of its text.
    pub(crate) fn response<B>(&self, body: impl FnOnce(Bytes) -> B) -> Response<B> {
        let mut text = Map::new();
        text.insert("title".to_owned(), json!(self.word));
        text.insert("status".to_owned(), json!(self.status.as_u16()));
        text.insert("detail".to_owned(), json!(self.detail));
        if let Some(stale) = self.stale {
            text.insert("token".to_owned(), json!(stale.token.get()));
            text.insert("highest".to_owned(), json!(stale.highest.map(Token::get)));
        }
        let mut response = Response::new(body(Value::Object(text).to_string().into()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(FENCING_PROBLEM, HeaderValue::from_static(self.word));
        if self.retry {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
