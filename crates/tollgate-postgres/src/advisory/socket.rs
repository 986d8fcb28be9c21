//! A socket that every runtime can read and write, one after the other.
//!
//! A lock hangs on its connection, and that outlives what opened it: the keeper asks over it whether it is still there while
//! the caller's executor is blocked, and a runtime may end before the lock does. tokio's own sockets belong to the runtime that
//! opened them; this one is made known to each that uses it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::runtime::{Handle, Id};

/// What the system knows of it.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Stream {
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(bytes),
            Self::Unix(stream) => (&*stream).read(bytes),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).write(bytes),
            Self::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn end(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        }
    }

    /// Whether there is something to read, or the other end has hung up.
    pub(super) fn stirs(&self) -> bool {
        let looked = recv(self, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(looked, Err(rustix::io::Errno::AGAIN))
    }
}

/// The socket.
pub(super) struct Socket {
    stream: Arc<Stream>,
    /// Where it is known.
    known: Vec<(Id, AsyncFd<Arc<Stream>>)>,
}

impl Socket {
    /// `stream` must not block.
    pub(super) fn new(stream: Arc<Stream>) -> Self {
        Self { stream, known: Vec::new() }
    }

    /// As the runtime knows it that runs this.
    fn here(&mut self) -> io::Result<&AsyncFd<Arc<Stream>>> {
        let runtime = Handle::try_current().map_err(io::Error::other)?.id();
        let at = match self.known.iter().position(|(known, _)| *known == runtime) {
            Some(at) => at,
            None => {
                self.known.push((runtime, AsyncFd::new(self.stream.clone())?));
                self.known.len() - 1
            }
        };
        Ok(&self.known[at].1)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.here()?;
        loop {
            let mut ready = ready!(socket.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            let most = room.len();
            match ready.try_io(|socket| socket.get_ref().read(room)) {
                Ok(Ok(read)) => {
                    // All there was: to ask again would cost a system call.
                    if 0 < read && read < most {
                        ready.clear_ready();
                    }
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_nothing_yet) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = self.here()?;
        loop {
            let mut ready = ready!(socket.poll_write_ready(context))?;
            if let Ok(written) = ready.try_io(|socket| socket.get_ref().write(bytes)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.end())
    }
}

/// Waits until there is something to read, or the other end has hung up, and reads nothing.
pub(super) async fn until_it_stirs(stream: Arc<Stream>) -> io::Result<()> {
    let watched = AsyncFd::with_interest(stream, Interest::READABLE)?;
    loop {
        let mut ready = watched.readable().await?;
        if watched.get_ref().stirs() {
            return Ok(());
        }
        ready.clear_ready();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (UnixStream, Arc<Stream>) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (theirs, Arc::new(Stream::Unix(ours)))
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn it_goes_on_where_the_runtime_that_used_it_first_is_blocked_or_gone() {
        let (mut theirs, ours) = pair();
        let mut socket = Socket::new(ours);
        let (first, second) = (runtime(), runtime());
        let mut bytes = [0_u8; 3];
        first.block_on(async {
            theirs.write_all(b"one").unwrap();
            socket.read_exact(&mut bytes).await.unwrap();
        });
        second.block_on(async {
            socket.write_all(b"ask").await.unwrap();
            theirs.read_exact(&mut bytes).unwrap();
            // Part of it here, and the rest where it was before.
            theirs.write_all(b"twothree").unwrap();
            socket.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"two");
        });
        drop(second);
        first.block_on(async {
            let mut rest = [0_u8; 5];
            socket.read_exact(&mut rest).await.unwrap();
            assert_eq!(&rest, b"three");
        });
    }

    #[test]
    fn a_socket_that_is_hung_up_stirs_and_one_that_is_silent_does_not() {
        let (theirs, ours) = pair();
        assert!(!ours.stirs());
        runtime().block_on(async {
            let stirs = until_it_stirs(ours.clone());
            let mut stirs = std::pin::pin!(stirs);
            let at_once = std::future::poll_fn(|context| Poll::Ready(stirs.as_mut().poll(context).is_ready()));
            assert!(!at_once.await);
            drop(theirs);
            stirs.await.unwrap();
        });
        assert!(ours.stirs());
    }
}
