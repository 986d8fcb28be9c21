//! The bytes of a connection: plain or encrypted, and written in batches.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::pulse::Pulse;

/// From how many requests under way it pays to wait for the others that are about to be made.
const MANY: usize = 4;

/// What carries the bytes.
pub(crate) enum Carrier {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// A stream that lets others that are ready to write have their turn before it writes: one packet then carries
/// the requests of many tasks, which spares both sides most of their system calls.
pub(crate) struct Stream {
    carrier: Carrier,
    pulse: Arc<Pulse>,
    /// The others have had their turn.
    waited: bool,
}

impl Stream {
    pub(crate) fn new(carrier: Carrier, pulse: Arc<Pulse>) -> Self {
        Self { carrier, pulse, waited: false }
    }

    /// Pending once for each batch, if there may be others.
    fn let_others_first(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.waited || self.pulse.unanswered() < MANY {
            return Poll::Ready(());
        }
        self.waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The same call on whatever carries the bytes.
macro_rules! on_carrier {
    ($stream:expr, $method:ident, $($argument:expr),*) => {
        match &mut $stream.carrier {
            Carrier::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Carrier::Encrypted(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(on_carrier!(self, poll_read, context, buffer));
        if buffer.filled().len() > before {
            self.pulse.came();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.let_others_first(context));
        on_carrier!(self, poll_write, context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.let_others_first(context));
        on_carrier!(self, poll_write_vectored, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(stream) => stream.is_write_vectored(),
            Carrier::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waited = false;
        on_carrier!(self, poll_flush, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_carrier!(self, poll_shutdown, context)
    }
}
