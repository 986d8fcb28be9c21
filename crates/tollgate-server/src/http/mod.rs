//! The HTTP API without a socket: a call in, a reply out. The one place that every call passes.
//!
//! There are `acquire`, `extend`, `release`, `withdraw`, `break`, `admit` and `lock` by now, and the two for health.

mod locks;
mod look;

use serde::Serialize;
use tollgate_proto::{Health, HealthStatus, Problem, ProblemKind};

use crate::service::Service;

/// A call, after its front end has read and authorised it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The method, like `POST`.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// What follows the `?`.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The id that the answer names.
    pub request_id: &'a str,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The header `Content-Type`.
    pub media_type: &'static str,
    /// The header `Retry-After`.
    pub retry_after: Option<u64>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    fn json(body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("messages can be written as JSON");
        Self { status: 200, media_type: "application/json", retry_after: None, body }
    }

    fn problem(mut problem: Problem, request_id: &str) -> Self {
        problem.request_id = Some(request_id.to_owned());
        let (status, retry_after) = (problem.status, problem.retry_after_seconds());
        let body = serde_json::to_vec(&problem).expect("problems can be written as JSON");
        Self { status, media_type: Problem::MEDIA_TYPE, retry_after, body }
    }
}

/// Answers a call. A claim whose future is dropped is treated as one whose client is gone.
pub async fn answer(service: &Service, call: Call<'_>) -> Reply {
    match route(service, call).await {
        Ok(reply) => reply,
        Err(problem) => Reply::problem(problem, call.request_id),
    }
}

async fn route(service: &Service, call: Call<'_>) -> Result<Reply, Problem> {
    let (wanted, reply) = match call.path {
        "/v1/acquire" => ("POST", allowed(call, "POST", locks::acquire(service, call.body)).await),
        "/v1/extend" => ("POST", allowed(call, "POST", locks::extend(service, call.body)).await),
        "/v1/release" => ("POST", allowed(call, "POST", locks::release(service, call.body)).await),
        "/v1/withdraw" => ("POST", allowed(call, "POST", locks::withdraw(service, call.body)).await),
        "/v1/break" => ("POST", allowed(call, "POST", locks::break_lock(service, call.body)).await),
        "/v1/admit" => ("POST", allowed(call, "POST", locks::admit(service, call.body)).await),
        "/v1/lock" => ("GET", allowed(call, "GET", async { look::lock(service, call.query) }).await),
        "/healthz" | "/readyz" => ("GET", allowed(call, "GET", async { Ok(Reply::json(&health())) }).await),
        path => {
            let detail = format!("there is no {path:?}; the API's paths begin with /v1/");
            return Err(Problem::new(ProblemKind::NotFound, detail));
        }
    };
    reply.unwrap_or_else(|| {
        let detail = format!("{} takes {wanted}, not {}", call.path, call.method);
        Err(Problem::new(ProblemKind::MethodNotAllowed, detail))
    })
}

/// The reply, if the call has the method that its path takes.
async fn allowed(
    call: Call<'_>,
    method: &str,
    reply: impl Future<Output = Result<Reply, Problem>>,
) -> Option<Result<Reply, Problem>> {
    if call.method == method { Some(reply.await) } else { None }
}

fn health() -> Health {
    Health { status: HealthStatus::Ok.into() }
}
