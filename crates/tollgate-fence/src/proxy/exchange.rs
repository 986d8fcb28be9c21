//! One request to the service and its answer: until when it is under way.
//!
//! It is under way until its answer has come to the end, whoever still waits for it. A client that goes away ends nothing: the
//! service does not hear of it, and works on.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::lingering::Work;
use super::upstream::{Connections, Line};
use crate::problem::Problem;
use crate::turnstile::{Passage, Watch};

/// Sends a request and waits for the head of its answer.
pub(super) async fn exchange(
    connections: Arc<Connections>,
    mut request: Request<Upload>,
    mut passage: Option<Passage>,
) -> Result<(Response<Answer>, Work), Problem> {
    let mut line = connections.line().await?;
    loop {
        line.work.begin(passage.take());
        let mut failed = match line.sender.try_send_request(request).await {
            Ok(response) => {
                let work = line.work.clone();
                // What changes to another protocol has no body, and is not over with that.
                let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                return Ok((response.map(|body| Answer::new(body, line, connections, switches)), work));
            }
            Err(failed) => failed,
        };
        match failed.take_message() {
            // Nothing of it was sent: the service had closed this connection before. So this is no second time.
            Some(unsent) if !line.is_fresh() => {
                (request, passage) = (unsent, line.work.end());
                line = connections.open().await?;
            }
            // The passage stays with the connection, until the service has closed its side, too.
            _ => return Err(broken(failed.error())),
        }
    }
}

fn broken(error: &hyper::Error) -> Problem {
    if std::error::Error::source(error).is_some_and(|cause| cause.is::<Overtaken>()) {
        let detail = "a larger token came while this request was still being sent; the service may have seen a part of it";
        return Problem::new(StatusCode::PRECONDITION_FAILED, "stale", detail);
    }
    tracing::warn!(target: "tollgate", %error, "the service did not answer");
    // A body that the client did not finish is not the service's fault.
    let detail =
        format!("the connection ended before the service answered ({error}); it may have acted or not");
    Problem::new(StatusCode::BAD_GATEWAY, "broken", detail)
}

/// The body of a request, which tells when all of it was sent, and ends when the request is overtaken: who has lost the lock
/// and stands still in the middle must not keep out whoever has it.
pub(super) struct Upload {
    body: Incoming,
    whole: Option<oneshot::Sender<()>>,
    watch: Option<Watch>,
    overtaken: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Why a body ends in the middle.
#[derive(Debug)]
struct Overtaken;

impl fmt::Display for Overtaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a larger token came")
    }
}

impl StdError for Overtaken {}

impl Upload {
    pub(super) fn new(body: Incoming, watch: Option<Watch>) -> (Self, oneshot::Receiver<()>) {
        let (whole, sent) = oneshot::channel();
        let mut upload = Self { body, whole: Some(whole), watch, overtaken: None };
        upload.look();
        (upload, sent)
    }

    fn look(&mut self) {
        if self.body.is_end_stream()
            && let Some(whole) = self.whole.take()
        {
            // Nobody may want to know.
            let _ = whole.send(());
        }
    }

    /// Whether it comes too late. Asked only while the client is waited for.
    fn is_overtaken(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(watch) = self.watch.take() {
            self.overtaken = Some(Box::pin(watch.overtaken()));
        }
        self.overtaken.as_mut().is_some_and(|overtaken| overtaken.as_mut().poll(context).is_ready())
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Ready(None) => drop(self.whole.take()),
            Poll::Ready(Some(_)) => self.look(),
            Poll::Pending if self.is_overtaken(context) => {
                self.overtaken = None;
                return Poll::Ready(Some(Err(Overtaken.into())));
            }
            Poll::Pending => {}
        }
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. When it has come to its end the request is over, and its connection can be used again. Dropped
/// before that, the rest is read by nobody in particular.
pub(super) struct Answer {
    body: Option<Incoming>,
    line: Option<Line>,
    connections: Arc<Connections>,
}

impl Answer {
    fn new(body: Incoming, line: Line, connections: Arc<Connections>, switches: bool) -> Self {
        let mut answer = Self { body: Some(body), line: Some(line), connections };
        if !switches {
            answer.look();
        }
        answer
    }

    fn look(&mut self) {
        if self.body.as_ref().is_some_and(Body::is_end_stream) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(line) = self.line.take() {
            drop(line.work.end());
            self.connections.give_back(line);
        }
    }

    /// It is no answer any more, but the beginning of something else over the same connection.
    pub(super) fn forget(mut self) {
        self.line = None;
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        match &frame {
            Poll::Ready(None) => self.finish(),
            // The passage stays with the connection.
            Poll::Ready(Some(Err(_))) => self.line = None,
            Poll::Ready(Some(Ok(_))) => self.look(),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        let (true, Some(body), Ok(runtime)) =
            (line.work.is_guarded(), self.body.take(), Handle::try_current())
        else {
            return;
        };
        let mut rest = Self { body: Some(body), line: Some(line), connections: self.connections.clone() };
        runtime.spawn(async move { while let Some(Ok(_)) = rest.frame().await {} });
    }
}

/// A future that is finished by somebody else if nobody waits for it any more.
pub(super) struct Outlives<F: Future<Output: Send> + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: Send> + Send + 'static> Outlives<F> {
    pub(super) fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Outlives<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Outlives<F> {
    fn drop(&mut self) {
        if let (Some(future), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { drop(future.await) });
        }
    }
}
