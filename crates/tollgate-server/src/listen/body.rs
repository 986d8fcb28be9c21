//! Bodies on the wire: requests are read within limits, replies are written whole or as events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::{mpsc, watch};
use tollgate_proto::{Event, Problem, ProblemKind};

use crate::service::EventStream;

/// How often a silent event stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many events wait for a slow client before the stream falls behind.
const AHEAD: usize = 64;

/// Reads a body of at most `most` bytes within `time`.
pub(super) async fn read(mut body: Incoming, most: usize, time: Duration) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        let detail = match most {
            0 => "this call takes no body; leave it out".to_owned(),
            most => format!("a body may have {most} bytes; split the call"),
        };
        Problem::new(ProblemKind::TooLarge, detail)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let reading = async {
        let mut bytes = Vec::new();
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let frame = frame.map_err(|_| {
                Problem::new(ProblemKind::Malformed, "the body ends before its announced end; send all of it")
            })?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > most {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes)
    };
    tokio::time::timeout(time, reading).await.unwrap_or_else(|_| {
        let detail = format!("the body took longer than {} s; send it faster", time.as_secs());
        Err(Problem::new(ProblemKind::Malformed, detail))
    })
}

/// The body of a reply.
pub(super) enum Outgoing {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Outgoing {
    /// Follows `events` until the client is gone or the server stops.
    pub(super) fn events(mut events: EventStream, mut stop: watch::Receiver<bool>) -> Self {
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::task::spawn_local(async move {
            let follow = async {
                loop {
                    let block = match tokio::time::timeout(KEEP_ALIVE, events.next()).await {
                        Ok(Some(event)) => Bytes::from(event.to_sse()),
                        Ok(None) => return,
                        Err(_) => Bytes::from_static(Event::KEEP_ALIVE.as_bytes()),
                    };
                    if sender.send(block).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = follow => {}
                () = sender.closed() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
        Self::Events(receiver)
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(receiver) => {
                receiver.poll_recv(context).map(|block| block.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}
