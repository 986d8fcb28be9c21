//! What whoever is not let through is told: a status, a word for programs and a sentence for people.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use tollgate_core::{Error, ErrorKind, Stale, Token};

/// Says in one word what is wrong, in every answer that is ours and not the service's.
const FENCING_PROBLEM: HeaderName = HeaderName::from_static("fencing-problem");

/// Marks an answer of our own within this process, where several layers may be around one service.
#[derive(Clone)]
struct Ours;

/// Takes the header away from the head of a service's answer, or its trailers.
pub(crate) fn disown(headers: &mut HeaderMap) {
    headers.remove(FENCING_PROBLEM);
}

/// The same for an answer from within this process, which may be another layer's.
pub(crate) fn disown_unless_ours<B>(response: &mut Response<B>) {
    if response.extensions().get::<Ours>().is_none() {
        disown(response.headers_mut());
    }
}

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
        let detail = "this request may change something and carries no fencing token; send the header \
                      Fencing-Token: TOKEN with the token of your lock";
        Self::new(StatusCode::PRECONDITION_REQUIRED, "missing", detail)
    }

    /// The method that needs no token is not the one that counts.
    pub(crate) fn method_override() -> Self {
        let detail = "this request carries no fencing token, and a header asks for another method than its \
                      own; remove that header, or send Fencing-Token: TOKEN with the token of your lock";
        Self::new(StatusCode::PRECONDITION_REQUIRED, "method-override", detail)
    }

    /// There are as many connections to the service as there may be.
    pub(crate) fn full() -> Self {
        let detail = "this proxy has as many connections to the service as its limit allows; nothing was \
                      sent to the service, try again";
        Self { retry: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "full", detail) }
    }

    /// Somebody older is still at work.
    pub(crate) fn busy() -> Self {
        let detail = "requests with an older token are still unanswered; nothing was forwarded, try again";
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
                tracing::warn!(target: "tollgate", %error, "the gate cannot be queried");
                // What is wrong with the store is told to those who run it, not to everybody.
                let detail = "the proxy cannot check now whether this token is stale; nothing was \
                              forwarded, try again";
                Self { retry: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "gate", detail) }
            }
        }
    }

    /// A larger token came while the request was being sent.
    pub(crate) fn cut_off(error: &Error) -> Self {
        let problem = Self::of_gate(error);
        let detail = format!(
            "{}; the request was still being sent, and the service may have seen part of it or all of it",
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
        response.extensions_mut().insert(Ours);
        response
    }
}
