//! A tower layer that checks `Fencing-Token` before a service of your own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use tollgate_core::Gate;
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::{Answer, Bounds, BoxError, Ending};
use crate::problem::{self, Problem};
use crate::token_header::{overrides_method, shown};
use crate::turnstile::{DRAIN, Passage, Turnstile};
use crate::unread;

/// A layer that lets a request through only with a token that is not stale.
///
/// The token is in the header `Fencing-Token: 42`, or `42;shared` for that of a shared lock. `resource` says what a request is
/// about; where it says nothing there is nothing to fence.
///
/// - 428 without a token, unless the method only reads (GET, HEAD, OPTIONS, TRACE); 400 for what is no token; 412 for a
///   stale one, with both numbers; 503 if the gate cannot be asked. Nothing goes through unchecked. Who shows a token is
///   checked whatever the method is: so a holder admits itself before its first read. A request without a token that asks for
///   another method (`X-HTTP-Method-Override` and its kin) is a 428, too.
///   What is unread of a refused request is read, within bounds, so that a client that sends before it reads hears of that.
/// - **In order.** A larger token goes through only when every request with a smaller one is over: its answer has come to the
///   end, or was dropped. It waits for that up to [`drain`](Self::drain), and is a 503 with `Retry-After` then. It never waits for
///   a client that does not read: the answer is read on then, for half of that time at most, and cut off. What your service
///   leaves running beside its answer is not seen, and neither is another process that serves the same resource.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::MemoryGate;
/// use tollgate_fence::FencingLayer;
/// use tower_layer::Layer;
///
/// let gate = Arc::new(MemoryGate::new());
/// let layer = FencingLayer::new(gate, |request: &http::request::Parts| {
///     Some(request.uri.path().trim_matches('/').to_owned())
/// });
/// # struct Shop;
/// let fenced = layer.layer(Shop);
/// ```
#[derive(Clone)]
pub struct FencingLayer<F> {
    turnstile: Arc<Turnstile>,
    gate: Arc<dyn Gate>,
    drain: Duration,
    resource: F,
}

impl<F> FencingLayer<F> {
    /// A layer that asks `gate` about the resource that `resource` tells of a request.
    pub fn new(gate: Arc<dyn Gate>, resource: F) -> Self
    where
        F: Fn(&http::request::Parts) -> Option<String>,
    {
        Self { turnstile: Turnstile::new(gate.clone(), DRAIN), gate, drain: DRAIN, resource }
    }

    /// How long a request waits for those with smaller tokens; 10 s unless said.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        (self.turnstile, self.drain) = (Turnstile::new(self.gate.clone(), drain), drain);
        self
    }
}

impl<S, F: Clone> Layer<S> for FencingLayer<F> {
    type Service = Fencing<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        let (turnstile, resource) = (self.turnstile.clone(), self.resource.clone());
        Fencing { inner, turnstile, read_on: self.drain / 2, resource }
    }
}

/// A service behind a [`FencingLayer`].
///
/// ```
/// # use std::sync::Arc;
/// # use tower_layer::Layer;
/// # struct Shop;
/// let gate = Arc::new(tollgate::MemoryGate::new());
/// let fenced: tollgate_fence::Fencing<Shop, _> =
///     tollgate_fence::FencingLayer::new(gate, |_: &http::request::Parts| Some("shop".to_owned())).layer(Shop);
/// ```
#[derive(Clone)]
pub struct Fencing<S, F> {
    inner: S,
    turnstile: Arc<Turnstile>,
    read_on: Duration,
    resource: F,
}

/// What a fenced service answers with, or why it was not asked.
pub type FencingFuture<B, E> =
    Pin<Box<dyn Future<Output = Result<Response<Either<PassedBody<B>, Full<Bytes>>>, E>> + Send>>;

impl<S, F, A, B> Service<Request<A>> for Fencing<S, F>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&http::request::Parts) -> Option<String>,
    A: Body<Data: Send, Error: Send> + Send + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    type Response = Response<Either<PassedBody<B>, Full<Bytes>>>;
    type Error = S::Error;
    type Future = FencingFuture<B, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // The one that is ready goes; the next one has to become so.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let (parts, body) = request.into_parts();
        let resource = (self.resource)(&parts);
        let (turnstile, read_on) = (self.turnstile.clone(), self.read_on);
        Box::pin(async move {
            let passage = match resource {
                Some(resource) => match passage(&turnstile, &resource, &parts).await {
                    Ok(passage) => passage,
                    Err(problem) => {
                        if !unread::waits_to_be_asked(&parts.headers) {
                            unread::discard(body);
                        }
                        return Ok(problem.response(|text| Either::Right(Full::new(text))));
                    }
                },
                None => None,
            };
            let mut response = inner.call(Request::from_parts(parts, body)).await?;
            problem::disown_unless_ours(&mut response);
            let watch = passage.as_ref().map(Passage::watch);
            // A service that hears that nobody wants its answer is not waited for.
            let bounds = Bounds { awaited: read_on, alone: Duration::ZERO };
            let passed = |body| PassedBody(Answer::new(body, Passed(passage), watch, bounds));
            Ok(response.map(|body| Either::Left(passed(body))))
        })
    }
}

/// Whether a method changes nothing, as HTTP defines it.
pub(crate) fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

async fn passage(
    turnstile: &Arc<Turnstile>,
    resource: &str,
    parts: &http::request::Parts,
) -> Result<Option<Passage>, Problem> {
    match shown(&parts.headers)? {
        Some(fence) => turnstile.enter(resource, fence).await.map(Some),
        None if only_reads(&parts.method) && overrides_method(&parts.headers) => {
            Err(Problem::method_override())
        }
        None if only_reads(&parts.method) => Ok(None),
        None => Err(Problem::missing()),
    }
}

/// The body of an answer, with which its request is over.
///
/// ```
/// use http_body_util::{BodyExt, Full};
/// # fn example(body: tollgate_fence::PassedBody<Full<bytes::Bytes>>) {
/// let boxed = body.boxed();
/// # }
/// ```
pub struct PassedBody<B: Body>(Answer<B, Passed>);

/// What was made of a request ends with its answer: nothing of it works on in this process.
struct Passed(Option<Passage>);

impl Ending for Passed {
    const WORKS_ON: bool = false;

    fn whole(self) {
        drop(self.0);
    }

    fn cut(self) {
        drop(self.0);
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Body for PassedBody<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
