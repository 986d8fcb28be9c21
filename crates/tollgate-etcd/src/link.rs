//! One open connection to one member. It does not reconnect: what was learnt on it holds as long as it lives.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong};
use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tollgate_core::tls::is_refusal;
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Result};

use crate::channel::Channel;
use crate::secure::secured;

/// How often a connection is asked whether it lives. etcd hangs up on those who ask more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to answer that.
const PONG_WITHIN: Duration = Duration::from_secs(5);
/// As much as may be on its way to us unread, of one stream and of all.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// An open connection. Clones are the same one; it is closed when the last is dropped.
#[derive(Clone)]
pub(crate) struct Link(Arc<Open>);

/// A connection that is open only as long as others need it.
pub(crate) struct WeakLink(Weak<Open>);

impl WeakLink {
    pub(crate) fn upgrade(&self) -> Option<Link> {
        self.0.upgrade().map(Link)
    }
}

struct Open {
    sender: SendRequest<Bytes>,
    origin: Uri,
    endpoint: usize,
    tap: Arc<Tap>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.tap.close();
    }
}

/// What closes a connection, and shows that it lives.
///
/// Streams that wait for an answer keep a connection going: so what is closed is what it reads from.
struct Tap {
    opened: Instant,
    /// When it was last read from, in nanoseconds since it was opened.
    read: AtomicU64,
    /// The term of etcd's leader, as far as it was asked for.
    term: AtomicU64,
    /// When it was last asked for, counted like `read`.
    looked: AtomicU64,
    closed: AtomicBool,
    /// Whether the other side refused to speak with us after all: of our certificate it says so only then.
    refused: AtomicBool,
    reader: AtomicWaker,
}

impl Tap {
    fn new() -> Self {
        let [read, term, looked] = [(); 3].map(|()| AtomicU64::new(0));
        let [closed, refused] = [(); 2].map(|()| AtomicBool::new(false));
        Self { opened: Instant::now(), read, term, looked, closed, refused, reader: AtomicWaker::new() }
    }

    fn at(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.opened);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn note_read(&self) {
        self.read.store(self.at(Instant::now()), Ordering::Release);
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.reader.wake();
    }
}

/// Says that a connection is closed when its driver ends, also with the runtime it was on.
struct Ends(Arc<Tap>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Link {
    /// Opens a connection whose driver runs on the current runtime.
    pub(crate) async fn dial(
        host: &Host,
        endpoint: usize,
        tls: Option<&Arc<rustls::ClientConfig>>,
    ) -> Result<Self> {
        let tcp = TcpStream::connect((host.name.as_str(), host.port))
            .await
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| unreachable(host, error))?;
        let tap = Arc::new(Tap::new());
        let (sender, scheme) = match tls {
            None => (greeted(host, Tapped { inner: tcp, tap: tap.clone() }).await?, "http"),
            Some(tls) => {
                let inner = secured(host, tls, tcp).await?;
                (greeted(host, Tapped { inner, tap: tap.clone() }).await?, "https")
            }
        };
        let origin = format!("{scheme}://{host}").parse().map_err(|error: http::uri::InvalidUri| {
            Error::invalid(format!("{host} is not a valid host in a URL")).caused_by(error)
        })?;
        Ok(Self(Arc::new(Open { sender, origin, endpoint, tap })))
    }

    /// What stubs call through.
    pub(crate) fn channel(&self) -> Channel {
        Channel::new(self.0.sender.clone(), self.clone())
    }

    /// Whom stubs call.
    pub(crate) fn origin(&self) -> Uri {
        self.0.origin.clone()
    }

    /// Which of the endpoints it goes to.
    pub(crate) fn endpoint(&self) -> usize {
        self.0.endpoint
    }

    /// Whether nothing was read from it since: what is shows that it lives.
    pub(crate) fn is_silent_since(&self, moment: Instant) -> bool {
        let tap = &self.0.tap;
        tap.opened + Duration::from_nanos(tap.read.load(Ordering::Acquire)) < moment
    }

    /// The term of etcd's leader, as far as this member has told.
    pub(crate) fn term(&self) -> u64 {
        self.0.tap.term.load(Ordering::Acquire)
    }

    /// This member tells the term of the leader.
    pub(crate) fn note_term(&self, term: u64) {
        self.0.tap.term.fetch_max(term, Ordering::AcqRel);
    }

    /// Whether it is time to ask for the term again: one of many who want to know does, `every` so often.
    pub(crate) fn may_ask_for_term(&self, every: Duration) -> bool {
        let tap = &self.0.tap;
        let (now, last) = (tap.at(Instant::now()), tap.looked.load(Ordering::Acquire));
        let due = u128::from(now.saturating_sub(last)) >= every.as_nanos();
        due && tap.looked.compare_exchange(last, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the other side refused to speak with us.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.tap.refused.load(Ordering::Acquire)
    }

    /// Whether nothing can be sent over it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.tap.closed.load(Ordering::Acquire)
    }

    /// Closes it for everybody.
    pub(crate) fn close(&self) {
        self.0.tap.close();
    }

    pub(crate) fn downgrade(&self) -> WeakLink {
        WeakLink(Arc::downgrade(&self.0))
    }

    /// Whether they are the same connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Starts HTTP/2 on `stream`.
async fn greeted(
    host: &Host,
    stream: Tapped<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
) -> Result<SendRequest<Bytes>> {
    let ends = Ends(stream.tap.clone());
    let mut http = Builder::new();
    http.enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, mut driver) = http.handshake(stream).await.map_err(|error| unreachable(host, error))?;
    let pings = driver.ping_pong();
    tokio::spawn(async move {
        let _ends = ends;
        tokio::select! {
            // A runtime that was blocked finds the answer to its ping first, and then that it took long.
            biased;
            // Whoever waits for an answer is told.
            _ = driver => {}
            () = until_silent(pings) => {}
        }
    });
    Ok(sender)
}

/// Completes when the other side no longer answers.
async fn until_silent(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PING_EVERY).await;
        if !matches!(tokio::time::timeout(PONG_WITHIN, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

fn unreachable(host: &Host, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let message = format!("etcd at {host} cannot be reached; is it running, and is the address right?");
    Error::new(ErrorKind::Unavailable, message).caused_by(error)
}

/// A stream that can be closed from elsewhere, and counts what is read from it.
struct Tapped<S> {
    inner: S,
    tap: Arc<Tap>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tapped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        // Before it is looked at, so that no closing is missed.
        self.tap.reader.register(context.waker());
        if self.tap.closed.load(Ordering::Acquire) {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(read) = &read {
            self.tap.note_read();
            if read.as_ref().is_err_and(is_refusal) {
                self.tap.refused.store(true, Ordering::Release);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tapped<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
