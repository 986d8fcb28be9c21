//! One request to the service and its answer: until when it is under way.
//!
//! It is under way until its answer has come to the end and all of it was sent, whoever still waits for it. A client that goes
//! away ends nothing: the service does not hear of it, and works on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::runtime::Handle;

use super::lingering::Work;
use super::upload::{Progress, Upload};
use super::upstream::{Connections, Line};
use crate::answer::{Answer, Ending};
use crate::problem::Problem;
use crate::turnstile::{Passage, Watch};

/// What a request got: an answer, or another protocol over the connection that it went over.
pub(super) enum Outcome {
    Answered(Response<Answer<Incoming, Turn>>),
    Switched(Response<Incoming>, Work),
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn exchange(
    connections: Arc<Connections>,
    mut request: Request<Upload>,
    mut passage: Option<Passage>,
    progress: Progress,
) -> Result<Outcome, Problem> {
    let watch = passage.as_ref().map(Passage::watch);
    let mut line = connections.line().await?;
    loop {
        // To connect may have taken a while.
        if let Some(watch) = watch.as_ref().filter(|_| line.is_fresh())
            && let Some(highest) = watch.is_overtaken()
        {
            return Err(Problem::of_gate(&watch.refused(highest)));
        }
        // The connection has the passage until it ends. It may end before it has taken the request, which is not over then.
        let kept = passage.as_ref().map(Passage::twin);
        line.work.begin(passage.take(), progress.clone());
        let answered = tokio::select! {
            biased;
            answered = line.sender.try_send_request(request) => answered,
            stale = cut_off(watch.as_ref(), &progress) => {
                line.work.cut();
                return Err(stale);
            }
        };
        let mut failed = match answered {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Ok(Outcome::Switched(response, line.work));
            }
            Ok(response) => {
                line.work.answering();
                let bounds = connections.bounds;
                return Ok(Outcome::Answered(
                    response.map(|body| Answer::new(body, Turn { line, connections }, watch, bounds)),
                ));
            }
            Err(failed) => failed,
        };
        match failed.take_message() {
            // Nothing of it was sent: the service had closed this connection before. So this is no second time.
            Some(unsent) if !line.is_fresh() => {
                drop(line.work.end());
                (request, passage) = (unsent, kept);
                line = connections.open().await?;
            }
            // The passage stays with the connection, until the service has closed its side, too.
            _ => return Err(broken(failed.error())),
        }
    }
}

/// Completes when somebody waits for a request of which a part is still to come: who has lost the lock and stands still in the middle
/// must not keep out whoever has it.
async fn cut_off(watch: Option<&Watch>, progress: &Progress) -> Problem {
    if let (Some(watch), false) = (watch, progress.is_whole()) {
        let newer = watch.awaited().await;
        if !progress.is_whole() {
            return Problem::cut_off(&watch.refused(newer));
        }
    }
    std::future::pending().await
}

fn broken(error: &hyper::Error) -> Problem {
    tracing::warn!(target: "tollgate", %error, "the service did not answer");
    // A body that the client did not finish is not the service's fault.
    let detail = format!(
        "the connection ended before the service answered ({error}); the request may have been executed"
    );
    Problem::new(StatusCode::BAD_GATEWAY, "broken", detail)
}

/// The connection that an answer comes over.
pub(super) struct Turn {
    line: Line,
    connections: Arc<Connections>,
}

impl Ending for Turn {
    const WORKS_ON: bool = true;

    fn whole(self) {
        if self.line.work.answered() {
            self.connections.give_back(self.line);
        } else {
            // Answered before it was read: what is still to come of it must not come behind a larger token.
            self.line.work.cut();
        }
    }

    fn cut(self) {
        self.line.work.cut();
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
