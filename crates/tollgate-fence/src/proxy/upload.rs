//! The body of a request on its way to the service, and how far it has come.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// For how long the rest of a body is read that nobody wants any more. A client that writes to a closed connection may never see
/// what it was answered.
const REST: Duration = Duration::from_secs(5);

/// The body.
pub(super) struct Upload {
    body: Option<Incoming>,
    progress: Progress,
}

/// How far a request has come.
#[derive(Clone)]
pub(super) struct Progress(Arc<Mutex<Sending>>);

struct Sending {
    /// Since when the service is waited for; nothing while the client is.
    since: Option<Instant>,
    /// Nothing more comes from the client.
    whole: bool,
    /// All of it was handed to the network.
    sent: bool,
}

impl Progress {
    /// Of a request that has yet to be sent.
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Sending { since: Some(Instant::now()), whole: false, sent: false })))
    }

    pub(super) fn is_whole(&self) -> bool {
        self.sending().whole
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sending().sent
    }

    /// Everything that was written to the connection until now is in the network's hands.
    pub(super) fn flushed(&self) {
        let mut sending = self.sending();
        sending.sent = sending.whole;
    }

    /// Completes when the service has been waited for, to take the request or to answer it, for as long as `most`. To wait for
    /// the client does not count.
    pub(super) async fn late(&self, most: Duration) {
        let mut looked = Instant::now();
        loop {
            tokio::time::sleep_until(looked + most).await;
            looked = match self.sending().since {
                Some(since) if since.elapsed() >= most => return,
                Some(since) => since,
                None => Instant::now(),
            };
        }
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    pub(super) fn new(body: Incoming) -> (Self, Progress) {
        let progress = Progress::new();
        progress.sending().whole = body.is_end_stream();
        (Self { body: Some(body), progress: progress.clone() }, progress)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(&mut *body).poll_frame(context);
        let is_whole = matches!(frame, Poll::Ready(None)) || body.is_end_stream();
        let mut sending = self.progress.sending();
        sending.since = frame.is_ready().then(Instant::now);
        sending.whole |= is_whole && frame.is_ready();
        drop(sending);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (false, Some(mut body), Ok(runtime)) =
            (self.progress.is_whole(), self.body.take(), Handle::try_current())
        {
            let rest = async move { while let Some(Ok(_)) = body.frame().await {} };
            runtime.spawn(async { drop(tokio::time::timeout(REST, rest).await) });
        }
    }
}
