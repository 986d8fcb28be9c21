//! The HTTP API without a socket: a call in, a reply out. The one place that every HTTP call passes.

mod metrics;
mod reply;
mod route;

use std::rc::Rc;
use std::str::FromStr;

use tollgate_proto::{EventId, EventsQuery, Health, HealthStatus, Problem, ProblemKind, parse, parse_query};

pub use metrics::Counters;
pub use reply::{Body, Reply};
pub use route::Route;

use crate::service::{Looked, Service};

/// The OpenAPI document; a test compares it with what the types and [`Route`] say.
const OPENAPI: &str = include_str!("openapi.json");

/// The page for people, until there is a dashboard.
const ROOT: &str = include_str!("root.html");

/// A call, after its front end has read it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The method, like `POST`.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// What follows the `?`.
    pub query: &'a str,
    /// The header `If-None-Match`.
    pub if_none_match: Option<&'a str>,
    /// The header `Last-Event-ID`.
    pub last_event_id: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
    /// The id that the answer names.
    pub request_id: &'a str,
}

/// The HTTP API over a service.
#[derive(Clone)]
pub struct Api {
    service: Rc<dyn Service>,
    counters: Rc<Counters>,
}

impl Api {
    /// The API over `service`.
    pub fn new(service: Rc<dyn Service>) -> Self {
        Self { service, counters: Rc::default() }
    }

    /// Answers a call. A future that is dropped is a client that is gone.
    pub async fn answer(&self, call: Call<'_>) -> Reply {
        let route = Route::of(call.path);
        let reply = match self.routed(route, call).await {
            Ok(reply) => reply,
            Err(problem) => Reply::problem(problem, call.request_id),
        };
        self.counters.count(route, reply.status);
        reply
    }

    async fn routed(&self, route: Option<Route>, call: Call<'_>) -> Result<Reply, Problem> {
        let Some(route) = route else {
            let detail = format!(
                "there is no {:?} here; the calls are described in /openapi.json, and begin with /v1/",
                shortened(call.path)
            );
            return Err(Problem::new(ProblemKind::NotFound, detail));
        };
        let method = if call.method == "HEAD" { "GET" } else { call.method };
        if method != route.method() {
            let detail = format!("{} takes {}, not {}", route.path(), route.method(), shortened(call.method));
            return Err(Problem::new(ProblemKind::MethodNotAllowed, detail));
        }
        self.answered(route, call).await
    }

    async fn answered(&self, route: Route, call: Call<'_>) -> Result<Reply, Problem> {
        let service = &*self.service;
        Ok(match route {
            Route::Acquire => Reply::json(&service.acquire(parse(call.body)?).await?),
            Route::AcquireAll => Reply::json(&service.acquire_all(parse(call.body)?).await?),
            Route::Keep => Reply::json(&service.keep(parse(call.body)?).await?),
            Route::Extend => Reply::json(&service.extend(parse(call.body)?).await?),
            Route::Release => Reply::json(&service.release(parse(call.body)?).await?),
            Route::Withdraw => Reply::json(&service.withdraw(parse(call.body)?).await?),
            Route::Admit => Reply::json(&service.admit(parse(call.body)?).await?),
            Route::Break => Reply::json(&service.break_lock(parse(call.body)?).await?),
            Route::Locks => Reply::json(&service.locks(parse_query(call.query)?).await?),
            Route::Lock => {
                let known = call.if_none_match.map(str::to_owned);
                match service.lock(parse_query(call.query)?, known).await? {
                    Looked::Changed(lock, tag) => Reply::json(&lock).tagged(tag),
                    Looked::Unchanged(tag) => Reply::empty(304).tagged(tag),
                }
            }
            Route::Events => {
                let query: EventsQuery = parse_query(call.query)?;
                Reply::events(service.events(query, last_event(call.last_event_id)).await?)
            }
            Route::Top => Reply::json(&service.top().await?),
            Route::Deadlocks => Reply::json(&service.deadlocks().await?),
            Route::Info => Reply::json(&service.info().await?),
            Route::Healthz => Reply::json(&Health { status: HealthStatus::Ok.into() }),
            Route::Readyz => {
                let status = service.health();
                let reply = Reply::json(&Health { status: status.into() });
                if status == HealthStatus::Ok { reply } else { reply.with_status(503) }
            }
            Route::Metrics => Reply::text("text/plain; version=0.0.4", self.counters.text()),
            Route::OpenApi => Reply::text("application/json", OPENAPI.to_owned()),
            Route::Root => Reply::text("text/html; charset=utf-8", ROOT.to_owned()),
        })
    }
}

/// An id that cannot be read is one that no server knows.
fn last_event(header: Option<&str>) -> Option<EventId> {
    let unknown = EventId { boot: 0, sequence: 0 };
    header.filter(|text| !text.is_empty()).map(|text| EventId::from_str(text).unwrap_or(unknown))
}

/// What a client sent, short enough to be repeated to it.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(end, _)| &text[..end])
}
