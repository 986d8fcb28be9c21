//! HTTP/1.1 on a connection: hyper reads and writes it, [`Api`](crate::http::Api) answers.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tollgate_core::OwnerId;
use tollgate_proto::limits::MAX_BODY_BYTES;
use tollgate_proto::{Problem, ProblemKind};

use super::body::{self, Outgoing};
use super::limits::Limits;
use super::{Peer, Server};
use crate::http::{Body, Call, Reply, Route};

/// The most bytes of a request's head.
const HEAD: usize = 32 * 1024;
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Serves a connection until the client closes it or the server stops.
pub(super) async fn serve(
    server: Rc<Server>,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: Peer,
    mut stop: watch::Receiver<bool>,
) {
    let stopping = stop.clone();
    let calls = service_fn(|request| {
        let (server, stop) = (server.clone(), stopping.clone());
        async move { Ok::<_, Infallible>(answered(&server, peer, stop, request).await) }
    });
    let limits = &server.limits;
    let connection = builder(limits).serve_connection(TokioIo::new(stream), calls);
    tokio::pin!(connection);
    tokio::select! {
        // The client has closed it, or sent what is no HTTP.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Answers the first request of a connection that is one too many, and closes it.
pub(super) async fn refuse(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    limits: &Limits,
    limit: &'static str,
) {
    let calls = service_fn(async |_: Request<Incoming>| {
        let detail = format!(
            "this server has as many connections as it takes (limit `{limit}`); close idle ones, or try \
             again later"
        );
        let mut problem = Problem::new(ProblemKind::Unavailable, detail);
        problem.limit = Some(limit.to_owned());
        problem.retry_after_ms = Some(1000);
        let id = request_id();
        let reply = Reply::problem(problem, &id);
        let mut response = response(reply, &id, None);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        Ok::<_, Infallible>(response)
    });
    let connection = builder(limits).keep_alive(false).serve_connection(TokioIo::new(stream), calls);
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), connection).await;
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.header_time).max_buf_size(HEAD);
    builder
}

async fn answered(
    server: &Server,
    peer: Peer,
    stop: watch::Receiver<bool>,
    request: Request<Incoming>,
) -> Response<Outgoing> {
    let id = request_id();
    let (head, body) = request.into_parts();
    let is_head = head.method == hyper::Method::HEAD;
    let text = |name: HeaderName| text(&head.headers, &name);
    let host = head.uri.authority().map(|authority| authority.as_str()).or(text(header::HOST));
    let allowed = match peer {
        Peer::Tcp => server.hosts.check(host, text(header::ORIGIN)),
        Peer::Unix => server.hosts.check_origin(text(header::ORIGIN), host.unwrap_or_default()),
    };
    // The body of a call that is refused anyway is read, so that the client sees the answer.
    let route = Route::of(head.uri.path()).filter(|route| head.method == route.method());
    let most = route.map_or(MAX_BODY_BYTES, Route::most_bytes);
    let read = match allowed {
        Ok(()) => body::read(body, most, server.limits.body_time).await,
        Err(problem) => Err(problem),
    };
    let reply = match read {
        Err(problem) => Reply::problem(problem, &id),
        Ok(body) => {
            let call = Call {
                method: head.method.as_str(),
                path: head.uri.path(),
                query: head.uri.query().unwrap_or_default(),
                if_none_match: text(header::IF_NONE_MATCH),
                last_event_id: text(HeaderName::from_static("last-event-id")),
                body: &body,
                request_id: &id,
            };
            server.api.answer(call).await
        }
    };
    let allow = Route::of(head.uri.path()).filter(|_| reply.status == 405);
    let mut response = response(reply, &id, Some(stop));
    if let Some(route) = allow {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(route.method()));
    }
    if is_head {
        *response.body_mut() = Outgoing::Whole(None);
    }
    response
}

/// The value of a header, if it is text.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // A value that is not text is as foreign as one that does not match.
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

fn response(reply: Reply, request_id: &str, stop: Option<watch::Receiver<bool>>) -> Response<Outgoing> {
    let body = match (reply.body, stop) {
        (Body::Whole(bytes), _) => {
            Outgoing::Whole(Some(Bytes::from(bytes)).filter(|bytes| !bytes.is_empty()))
        }
        (Body::Events(events), Some(stop)) => Outgoing::events(events, stop),
        (Body::Events(_), None) => Outgoing::Whole(None),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(reply.media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let mut insert = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    insert(REQUEST_ID, request_id);
    if let Some(tag) = &reply.tag {
        insert(header::ETAG, tag);
    }
    if let Some(seconds) = reply.retry_after {
        insert(header::RETRY_AFTER, &seconds.to_string());
    }
    response
}

/// An id for one request: random bits of this process and a number.
fn request_id() -> String {
    thread_local! {
        static NEXT: (u64, Cell<u64>) = (OwnerId::random().to_bits() as u64, Cell::new(0));
    }
    NEXT.with(|(process, next)| {
        next.set(next.get() + 1);
        format!("{process:016x}-{}", next.get())
    })
}
