//! A connection as tonic's stubs take it.
//!
//! A request whose message is there at once, as all but streams are, goes out whole: headers, message and end in one
//! packet. It costs no task of its own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http_body::{Body as _, Frame};
use tollgate_core::BoxFuture;
use tonic::body::Body;
use tonic::client::GrpcService;

use crate::link::Link;

/// A connection as stubs take it. It keeps the connection open.
#[derive(Clone)]
pub(crate) struct Channel {
    sender: SendRequest<Bytes>,
    link: Link,
}

impl Channel {
    pub(crate) fn new(sender: SendRequest<Bytes>, link: Link) -> Self {
        Self { sender, link }
    }
}

/// A request that never went out, or that the other side says it has not looked at.
#[derive(Debug)]
pub(crate) struct NotSent(pub(crate) Option<h2::Error>);

impl std::fmt::Display for NotSent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection was closed before the request was sent")
    }
}

impl std::error::Error for NotSent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.as_ref().map(|error| error as _)
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl GrpcService<Body> for Channel {
    type ResponseBody = Received;
    type Error = Failed;
    type Future = BoxFuture<'static, Result<http::Response<Received>, Failed>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        if self.link.is_closed() {
            return Poll::Ready(Err(NotSent(None).into()));
        }
        self.sender.poll_ready(context).map_err(|error| NotSent(Some(error)).into())
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let (response, stream) = match self.sender.send_request(http::Request::from_parts(parts, ()), false) {
            Ok(sent) => sent,
            Err(error) => return std::future::ready(Err(NotSent(Some(error)).into())).boxed(),
        };
        let sent = send(body, stream);
        let link = self.link.clone();
        Box::pin(async move {
            sent?;
            let response = response.await.map_err(|error| -> Failed {
                // Said only of what was not looked at.
                let refused = error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
                if refused { NotSent(Some(error)).into() } else { error.into() }
            })?;
            Ok(response.map(|stream| Received { stream, ended: false, _link: link }))
        })
    }
}

/// Sends what is there of `body`; what comes later is sent by a task.
fn send(mut body: Body, mut stream: SendStream<Bytes>) -> Result<(), Failed> {
    let mut held: Option<Bytes> = None;
    loop {
        match next(&mut body).now_or_never() {
            Some(Some(Ok(data))) => {
                if let Some(before) = held.replace(data) {
                    stream.send_data(before, false)?;
                }
            }
            Some(Some(Err(error))) => return Err(error),
            Some(None) => {
                stream.send_data(held.unwrap_or_default(), true)?;
                return Ok(());
            }
            None => {
                if let Some(data) = held.take() {
                    stream.send_data(data, false)?;
                }
                tokio::spawn(pump(body, stream));
                return Ok(());
            }
        }
    }
}

/// Sends a body whose parts come one by one, until it ends or nobody listens.
async fn pump(mut body: Body, mut stream: SendStream<Bytes>) {
    loop {
        tokio::select! {
            data = next(&mut body) => match data {
                Some(Ok(data)) => if stream.send_data(data, false).is_err() {
                    return;
                },
                Some(Err(_)) => return stream.send_reset(Reason::CANCEL),
                // If it fails there is nobody to tell.
                None => return drop(stream.send_data(Bytes::new(), true)),
            },
            _ = std::future::poll_fn(|context| stream.poll_reset(context)) => return,
        }
    }
}

/// The next data of a body; those of requests have no trailers.
async fn next(body: &mut Body) -> Option<Result<Bytes, Failed>> {
    let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(Into::into))
}

/// What comes back. It keeps the connection open.
pub(crate) struct Received {
    stream: RecvStream,
    ended: bool,
    _link: Link,
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.ended {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    // Read is read: there is room for as much again. If the connection is gone, so is the window.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.ended = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(context));
        Poll::Ready(trailers.transpose().map(|trailers| trailers.map(Frame::trailers)))
    }
}
