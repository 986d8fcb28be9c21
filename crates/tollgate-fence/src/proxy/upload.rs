//! The body of a request on its way to the service, and how far it has come.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::unread;

/// The body. What of it is not sent when this is dropped is read all the same.
pub(super) struct Upload {
    body: Option<Incoming>,
    /// The client sends it, and does not wait until it is asked for it.
    comes: bool,
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
    /// From now on the service is waited for.
    pub(super) fn begin(&self) {
        self.sending().since = Some(Instant::now());
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
    /// Of a request with these headers, which has yet to be sent.
    pub(super) fn new(headers: &HeaderMap, body: Incoming) -> (Self, Progress) {
        let sending = Sending { since: None, whole: body.is_end_stream(), sent: false };
        let progress = Progress(Arc::new(Mutex::new(sending)));
        let comes = !unread::waits_to_be_asked(headers);
        (Self { body: Some(body), comes, progress: progress.clone() }, progress)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.comes = true;
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
        if let (true, false, Some(body)) = (self.comes, self.progress.is_whole(), self.body.take()) {
            unread::discard(body);
        }
    }
}
