//! The body of an answer that nobody with a larger token waits for because a client does not read it.
//!
//! Usually whoever sends it to the client asks for its pieces. When somebody waits for the request it is read on beside that, as
//! fast as the service makes it: a little is kept for the client, and what is too much or too slow is cut off.
//!
//! - **Invariant:** a request is over when its answer has come to the end, whether or not a client has read it.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::problem;
use crate::turnstile::Watch;

/// How much of an answer that is read on is kept for its client.
const KEPT: usize = 1024 * 1024;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// What becomes of a request with its answer. Dropped without a word, nobody wants the answer and nothing has to be waited for.
pub(crate) trait Ending: Send + 'static {
    /// Whether the service works on when nobody reads its answer, so that it has to be read.
    const WORKS_ON: bool;

    /// The answer has come to its end.
    fn whole(self);

    /// It broke off, or is not waited for any longer.
    fn cut(self);
}

/// For how long an answer is read on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// When somebody waits for the request.
    pub(crate) awaited: Duration,
    /// When nobody wants the answer any more.
    pub(crate) alone: Duration,
}

/// The body.
pub(crate) struct Answer<B: Body, E: Ending> {
    shared: Arc<Shared<B, E>>,
}

struct Shared<B: Body, E> {
    rest: Mutex<Rest<B, E>>,
    /// The client wants no more.
    gone: Notify,
}

struct Rest<B: Body, E> {
    /// What is to come; it is elsewhere while it is read on.
    body: Option<B>,
    ending: Option<E>,
    /// What was read on and is not fetched yet.
    kept: VecDeque<Frame<B::Data>>,
    room: usize,
    /// Why the client gets no more than was kept.
    failed: Option<BoxError>,
    reader: Option<AbortHandle>,
    waker: Option<Waker>,
}

/// Why a body ends in the middle.
#[derive(Debug)]
struct CutOff;

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request with a larger token arrived, and this answer was not read in time")
    }
}

impl StdError for CutOff {}

impl<B, E> Answer<B, E>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
    E: Ending,
{
    /// An answer that is read on when `watch` says that somebody waits for it, or its client is gone.
    pub(crate) fn new(body: B, ending: E, watch: Option<Watch>, bounds: Bounds) -> Self {
        let is_over = body.is_end_stream();
        let rest = Rest {
            body: Some(body),
            ending: Some(ending),
            kept: VecDeque::new(),
            room: KEPT,
            failed: None,
            reader: None,
            waker: None,
        };
        let shared = Arc::new(Shared { rest: Mutex::new(rest), gone: Notify::new() });
        let mut rest = shared.rest();
        if is_over {
            rest.over();
        } else if let (Some(watch), Ok(runtime)) = (watch, Handle::try_current()) {
            rest.reader = Some(runtime.spawn(read_on(shared.clone(), watch, bounds)).abort_handle());
        }
        drop(rest);
        Self { shared }
    }
}

/// Waits until somebody waits for the request, or nobody for its answer, and reads the answer to its end then.
async fn read_on<B, E>(shared: Arc<Shared<B, E>>, watch: Watch, bounds: Bounds)
where
    B: Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
    E: Ending,
{
    let alone = tokio::select! {
        _ = watch.awaited() => None,
        () = shared.gone.notified() => Some(tokio::time::sleep(bounds.alone)),
    };
    let Some(mut body) = shared.rest().body.take() else { return };
    let reading = async {
        while let Some(frame) = body.frame().await {
            shared.rest().keep(disowned(frame.map_err(Into::into)?));
        }
        Ok(())
    };
    let in_time = async {
        watch.awaited().await;
        tokio::time::sleep(bounds.awaited).await;
    };
    // An answer without an end would be read for ever.
    let alone = async {
        match alone {
            Some(alone) => alone.await,
            None => std::future::pending().await,
        }
    };
    let read = tokio::select! {
        biased;
        read = reading => read,
        () = in_time => Err(CutOff.into()),
        () = alone => Err(CutOff.into()),
        () = shared.gone.notified(), if !E::WORKS_ON => Err(CutOff.into()),
    };
    // Before anybody hears that the request is over: to drop it may do something, too.
    drop(body);
    let mut rest = shared.rest();
    match read {
        Ok(()) => rest.over(),
        Err(error) => rest.fail(error),
    }
    rest.wake();
}

/// What a service says at the end does not pass as ours either.
fn disowned<D>(mut frame: Frame<D>) -> Frame<D> {
    if let Some(trailers) = frame.trailers_mut() {
        problem::disown(trailers);
    }
    frame
}

impl<B: Body, E> Shared<B, E> {
    fn rest(&self) -> MutexGuard<'_, Rest<B, E>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Body, E: Ending> Rest<B, E> {
    /// It has come to its end.
    fn over(&mut self) {
        if let Some(ending) = self.ending.take() {
            ending.whole();
        }
        self.dismiss();
    }

    fn fail(&mut self, error: BoxError) {
        self.failed.get_or_insert(error);
        self.cut();
    }

    fn cut(&mut self) {
        if let Some(ending) = self.ending.take() {
            ending.cut();
        }
        self.dismiss();
    }

    fn dismiss(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }

    fn keep(&mut self, frame: Frame<B::Data>) {
        let size = frame.data_ref().map_or(0, Buf::remaining);
        if size > self.room {
            // What is left out cannot be made up for: the client hears that there is something missing.
            self.kept.clear();
            self.failed.get_or_insert_with(|| CutOff.into());
        }
        if self.failed.is_none() {
            self.room -= size;
            self.kept.push_back(frame);
        }
        self.wake();
    }

    fn fetch(&mut self) -> Option<Frame<B::Data>> {
        let frame = self.kept.pop_front()?;
        self.room += frame.data_ref().map_or(0, Buf::remaining);
        Some(frame)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin, E: Ending> Body for Answer<B, E> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut rest = self.shared.rest();
        let body = rest.body.as_mut();
        let polled = body.map(|body| (Pin::new(&mut *body).poll_frame(context), body.is_end_stream()));
        match polled {
            Some((Poll::Ready(Some(Ok(frame))), is_over)) => {
                if is_over {
                    rest.over();
                }
                return Poll::Ready(Some(Ok(disowned(frame))));
            }
            Some((Poll::Ready(Some(Err(error))), _)) => {
                drop(rest.body.take());
                rest.cut();
                return Poll::Ready(Some(Err(error.into())));
            }
            Some((Poll::Ready(None), _)) => {
                rest.over();
                return Poll::Ready(None);
            }
            Some((Poll::Pending, _)) => {}
            None => {
                if let Some(frame) = rest.fetch() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                if let Some(error) = rest.failed.take() {
                    return Poll::Ready(Some(Err(error)));
                }
                if rest.ending.is_none() {
                    return Poll::Ready(None);
                }
            }
        }
        // Who reads on takes the body away from under whoever waits for it.
        rest.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.shared.rest();
        match &rest.body {
            Some(body) => body.is_end_stream(),
            None => rest.ending.is_none() && rest.kept.is_empty() && rest.failed.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.rest().body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl<B: Body, E: Ending> Drop for Answer<B, E> {
    fn drop(&mut self) {
        let mut rest = self.shared.rest();
        if rest.reader.is_some() && (E::WORKS_ON || rest.body.is_none()) {
            // The reader has to end it.
            (rest.room, rest.kept) = (0, VecDeque::new());
            self.shared.gone.notify_one();
            return;
        }
        rest.dismiss();
        let left = (rest.body.take(), rest.ending.take());
        drop(rest);
        // Not under the lock: what is dropped here is somebody else's.
        drop(left);
    }
}
