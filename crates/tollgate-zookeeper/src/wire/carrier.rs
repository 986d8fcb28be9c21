//! What carries the bytes of a connection: plain, or encrypted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A connection.
#[derive(Debug)]
pub(crate) enum Carrier {
    Plain(Plain),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Carrier {
    /// What callers can write to themselves, if nothing has to be encrypted.
    pub(crate) fn direct(&self) -> Option<Plain> {
        match self {
            Self::Plain(plain) => Some(plain.clone()),
            Self::Encrypted(_) => None,
        }
    }
}

/// A plain connection that several write to, in turn.
#[derive(Debug, Clone)]
pub(crate) struct Plain(Arc<TcpStream>);

impl Plain {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Writes what can be written without a wait.
    pub(crate) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            written => written,
        }
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(Plain(stream)) => loop {
                ready!(stream.poll_read_ready(context))?;
                match stream.try_read_buf(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return Poll::Ready(read.map(drop)),
                }
            },
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(Plain(stream)) => loop {
                ready!(stream.poll_write_ready(context))?;
                match stream.try_write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return Poll::Ready(written),
                }
            },
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // It is closed when it is dropped.
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
