//! A connection to the service behind the proxy that knows what is still under way over it.
//!
//! A request that was not answered may still do something, also when nobody waits for it. So its passage is over when its
//! answer has come and all of it was sent, or when the other side has closed the connection: not when we have. A connection
//! that is reset tells nothing of the service, which may still be at work: its passage stays for as long as a service may take.

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
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::upload::Progress;
use crate::turnstile::Passage;

/// After how long of silence the network is asked whether the other side is still there, and how often then.
const ALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// For how long at least the network tries to bring something to the other side.
const UNTAKEN: Duration = Duration::from_secs(30);

/// The request that is under way over a connection.
#[derive(Clone, Default)]
pub(super) struct Work(Arc<Shared>);

#[derive(Default)]
struct Shared {
    request: Mutex<Request>,
    cut: Notify,
}

#[derive(Default)]
struct Request {
    passage: Option<Passage>,
    progress: Option<Progress>,
    stage: Stage,
}

/// What has come of an answer.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Nothing,
    Begun,
    Whole,
}

impl Work {
    pub(super) fn begin(&self, passage: Option<Passage>, progress: Progress) {
        *self.request() = Request { passage, progress: Some(progress), stage: Stage::Nothing };
    }

    /// The head of the answer is there, and its body follows.
    pub(super) fn answering(&self) {
        self.request().stage = Stage::Begun;
    }

    /// The answer has come to its end. Says whether the request had, too: if not, its passage stays with the connection.
    pub(super) fn answered(&self) -> bool {
        let mut request = self.request();
        request.stage = Stage::Whole;
        let is_sent = request.progress.as_ref().is_none_or(Progress::is_sent);
        let over = if is_sent { request.passage.take() } else { None };
        drop((request, over));
        is_sent
    }

    /// It was never sent, or has come to its end in another way.
    pub(super) fn end(&self) -> Option<Passage> {
        self.request().passage.take()
    }

    /// Nothing more is sent or read. The passage stays until the service is done.
    pub(super) fn cut(&self) {
        self.0.cut.notify_one();
    }

    /// Completes when the connection is to be closed, whatever is under way.
    pub(super) async fn is_cut(&self) {
        self.0.cut.notified().await;
    }

    fn flushed(&self) {
        if let Some(progress) = &self.request().progress {
            progress.flushed();
        }
    }

    fn request(&self) -> MutexGuard<'_, Request> {
        self.0.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection itself.
pub(super) struct Lingering {
    stream: Option<TcpStream>,
    work: Work,
    /// How long a service may still be at work whose connection is gone.
    patience: Duration,
    /// It broke, before the other side had closed it.
    broke: bool,
    /// It counts as one of those that there may be, also while the service is still at work.
    place: Option<OwnedSemaphorePermit>,
}

impl Lingering {
    pub(super) fn new(stream: TcpStream, patience: Duration, place: OwnedSemaphorePermit) -> Self {
        let (idle, interval, count) = ALIVE;
        // Where that cannot be set the connection is as good as any.
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&stream, true);
        let _ = sockopt::set_tcp_keepidle(&stream, idle);
        let _ = sockopt::set_tcp_keepintvl(&stream, interval);
        let _ = sockopt::set_tcp_keepcnt(&stream, count);
        // Nobody asks while something is on its way: a host that vanished then would be believed in for a quarter of an hour. A
        // service that takes nothing counts as vanished, too, so it has the time that it may take.
        let untaken = UNTAKEN.max(patience).as_millis().try_into().unwrap_or(u32::MAX);
        let _ = sockopt::set_tcp_user_timeout(&stream, untaken);
        let (stream, place) = (Some(stream), Some(place));
        Self { stream, work: Work::default(), patience, broke: false, place }
    }

    pub(super) fn work(&self) -> Work {
        self.work.clone()
    }

    pub(super) async fn connect(
        addresses: &[SocketAddr],
        patience: Duration,
        place: OwnedSemaphorePermit,
    ) -> io::Result<Self> {
        Ok(Self::new(TcpStream::connect(addresses).await?, patience, place))
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("it is there until this is dropped"))
    }

    /// Remembers how it ended: the system tells it once.
    fn noted<T>(&mut self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled {
            self.broke |= is_broken(error);
        }
        polled
    }
}

/// Whether a connection broke. Who closes it and is written to afterwards resets it, too, but the system has seen the close then
/// and calls it a broken pipe.
fn is_broken(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::BrokenPipe
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let (Some(stream), Some(passage)) = (self.stream.take(), self.work.end()) else { return };
        let (stage, broke, patience) = (self.work.request().stage, self.broke, self.patience);
        let place = self.place.take();
        // Without a runtime the process ends, and nobody passes any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                linger(stream, stage, broke, patience).await;
                drop((passage, place));
            });
        }
    }
}

/// Waits until the other side is done with a request that will not be answered to anybody.
async fn linger(mut stream: TcpStream, stage: Stage, broke: bool, patience: Duration) {
    let closed = async {
        if broke {
            return false;
        }
        let _ = stream.shutdown().await;
        let mut ignored = [0; 4096];
        loop {
            match stream.read(&mut ignored).await {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !is_broken(&error),
            }
        }
    };
    let is_closed = match stage {
        Stage::Nothing => closed.await,
        // It may go on answering for ever to somebody who has closed one side only; then both are closed.
        Stage::Begun | Stage::Whole => tokio::time::timeout(patience, closed).await.unwrap_or(true),
    };
    if !is_closed && stage != Stage::Whole {
        tracing::warn!(
            target: "tollgate",
            ?patience,
            "a connection broke; requests with larger tokens wait, because the service may still execute \
             the request"
        );
        tokio::time::sleep(patience).await;
    }
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = self.stream().poll_read(context, buffer);
        self.noted(polled)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = self.stream().poll_write(context, bytes);
        self.noted(polled)
    }

    /// Whoever writes here keeps back nothing when it asks for this.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.stream().poll_flush(context);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.work.flushed();
        }
        self.noted(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = self.stream().poll_write_vectored(context, pieces);
        self.noted(polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_that_vanished_is_not_believed_in_for_longer_than_a_service_may_take() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = [listener.local_addr().unwrap()];
        for (patience, told) in [(1, 30_000), (60, 60_000)] {
            let place = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
            let line = Lingering::connect(&address, Duration::from_secs(patience), place).await.unwrap();
            let stream = line.stream.as_ref().unwrap();
            assert!(sockopt::socket_keepalive(stream).unwrap(), "while nothing is on its way");
            assert_eq!(sockopt::tcp_user_timeout(stream).unwrap(), told, "while something is");
        }
    }
}
