//! A connection to the service behind the proxy that knows what is still under way over it.
//!
//! A request that was not answered may still do something, also when nobody waits for it. So its passage is over when its
//! answer has come, or when the other side has closed the connection: not when we have.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::turnstile::Passage;

/// After how long of silence the network is asked whether the other side is still there, and how often then.
const ALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// The passage of the request that is under way over a connection, if it has one.
#[derive(Clone, Default)]
pub(super) struct Work(Arc<Mutex<Option<Passage>>>);

impl Work {
    pub(super) fn begin(&self, passage: Option<Passage>) {
        *self.passage() = passage;
    }

    /// It is answered, or was never sent.
    pub(super) fn end(&self) -> Option<Passage> {
        self.passage().take()
    }

    /// Whether somebody with a larger token waits for what is under way.
    pub(super) fn is_guarded(&self) -> bool {
        self.passage().is_some()
    }

    fn passage(&self) -> MutexGuard<'_, Option<Passage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection itself.
pub(super) struct Lingering {
    stream: Option<TcpStream>,
    work: Work,
}

impl Lingering {
    pub(super) fn new(stream: TcpStream) -> Self {
        let (idle, interval, count) = ALIVE;
        // Where that cannot be set the connection is as good as any.
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&stream, true);
        let _ = sockopt::set_tcp_keepidle(&stream, idle);
        let _ = sockopt::set_tcp_keepintvl(&stream, interval);
        let _ = sockopt::set_tcp_keepcnt(&stream, count);
        Self { stream: Some(stream), work: Work::default() }
    }

    pub(super) fn work(&self) -> Work {
        self.work.clone()
    }

    pub(super) async fn connect(addresses: &[SocketAddr]) -> io::Result<Self> {
        TcpStream::connect(addresses).await.map(Self::new)
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("it is there until this is dropped"))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let (Some(stream), Some(passage)) = (self.stream.take(), self.work.end()) else { return };
        // Without a runtime the process ends, and nobody passes any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(linger(stream, passage));
        }
    }
}

/// Waits until the other side is done with a request that will not be answered to anybody.
async fn linger(mut stream: TcpStream, passage: Passage) {
    let _ = stream.shutdown().await;
    let mut ignored = [0; 4096];
    while let Ok(1..) = stream.read(&mut ignored).await {}
    drop(passage);
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
