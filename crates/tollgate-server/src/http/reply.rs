//! The answer to a call: status, headers, body.

use serde::Serialize;
use tollgate_proto::Problem;

use crate::service::EventStream;

/// The body of a reply.
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// Server-Sent Events, for as long as the client listens.
    Events(EventStream),
}

/// The answer to a call.
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The header `Content-Type`.
    pub media_type: &'static str,
    /// The header `Retry-After`.
    pub retry_after: Option<u64>,
    /// The header `ETag`.
    pub tag: Option<String>,
    /// The body.
    pub body: Body,
}

impl Reply {
    fn new(status: u16, media_type: &'static str, body: Vec<u8>) -> Self {
        Self { status, media_type, retry_after: None, tag: None, body: Body::Whole(body) }
    }

    pub(super) fn json(body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("messages can be written as JSON");
        Self::new(200, "application/json", body)
    }

    pub(super) fn text(media_type: &'static str, text: String) -> Self {
        Self::new(200, media_type, text.into_bytes())
    }

    pub(super) fn empty(status: u16) -> Self {
        Self::new(status, "application/json", Vec::new())
    }

    pub(super) fn events(events: EventStream) -> Self {
        Self { body: Body::Events(events), ..Self::new(200, "text/event-stream", Vec::new()) }
    }

    /// The answer that a call was not done.
    pub fn problem(mut problem: Problem, request_id: &str) -> Self {
        problem.request_id = Some(request_id.to_owned());
        let (status, retry_after) = (problem.status, problem.retry_after_seconds());
        let body = serde_json::to_vec(&problem).expect("problems can be written as JSON");
        Self { retry_after, ..Self::new(status, Problem::MEDIA_TYPE, body) }
    }

    pub(super) fn tagged(self, tag: String) -> Self {
        Self { tag: Some(tag), ..self }
    }

    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// The body, if it is whole.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Whole(bytes) => Some(bytes),
            Body::Events(_) => None,
        }
    }
}
