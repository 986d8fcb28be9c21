//! A socket that every runtime can read and write, one after the other.
//!
//! A lock hangs on its connection, and that outlives what opened it: the keeper asks over it whether it is still there while
//! the caller's executor is blocked, and a runtime may end before the lock does. tokio's own sockets belong to the runtime that
//! opened them; this one is made known to each that uses it.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::runtime::{Handle, Id};

use crate::carrier::Carrier;

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

impl TryFrom<Carrier> for Stream {
    type Error = io::Error;

    fn try_from(carrier: Carrier) -> io::Result<Self> {
        Ok(match carrier {
            Carrier::Tcp(socket) => Self::Tcp(socket.into_std()?),
            Carrier::Unix(socket) => Self::Unix(socket.into_std()?),
        })
    }
}

impl Stream {
    /// As the runtime knows it that runs this.
    fn known(&self) -> io::Result<Known> {
        Ok(match self {
            Self::Tcp(stream) => Known::Tcp(tokio::net::TcpStream::from_std(stream.try_clone()?)?),
            Self::Unix(stream) => Known::Unix(tokio::net::UnixStream::from_std(stream.try_clone()?)?),
        })
    }

    fn shut_down(&self) {
        // One that is closed already is as good.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Whether there is something to read, or the other end has hung up.
    pub(super) fn stirs(&self) -> bool {
        let looked = recv(self, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(looked, Err(rustix::io::Errno::AGAIN))
    }
}

/// The same socket as a runtime knows it.
enum Known {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

/// The socket. It is hung up when this is dropped, whoever still watches it.
pub(super) struct Socket {
    stream: Arc<Stream>,
    /// How each runtime knows it.
    known: Vec<(Id, Known)>,
}

impl Socket {
    /// `stream` must not block.
    pub(super) fn new(stream: Arc<Stream>) -> Self {
        Self { stream, known: Vec::new() }
    }

    /// As the runtime knows it that runs this.
    fn here(&mut self) -> io::Result<&mut Known> {
        let runtime = Handle::try_current().map_err(io::Error::other)?.id();
        let at = match self.known.iter().position(|(known, _)| *known == runtime) {
            Some(at) => at,
            None => {
                self.known.push((runtime, self.stream.known()?));
                self.known.len() - 1
            }
        };
        Ok(&mut self.known[at].1)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stream.shut_down();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.here()? {
            Known::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Known::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.here()? {
            Known::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Known::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.here()? {
            Known::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Known::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Waits until there is something to read, or the other end has hung up, and reads nothing.
pub(super) async fn until_it_stirs(stream: Arc<Stream>) -> io::Result<()> {
    let known = stream.known()?;
    let looked = || if stream.stirs() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) };
    loop {
        let stirs = match &known {
            Known::Tcp(known) => {
                known.readable().await?;
                known.try_io(Interest::READABLE, looked)
            }
            Known::Unix(known) => {
                known.readable().await?;
                known.try_io(Interest::READABLE, looked)
            }
        };
        match stirs {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            stirs => return stirs,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

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
            let at_once =
                std::future::poll_fn(|context| Poll::Ready(stirs.as_mut().poll(context).is_ready()));
            assert!(!at_once.await);
            drop(theirs);
            stirs.await.unwrap();
        });
        assert!(ours.stirs());
    }
}
