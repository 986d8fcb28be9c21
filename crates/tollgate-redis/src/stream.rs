//! The bytes of a connection: plain or encrypted, and read in slices.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::pulse::Pulse;
use crate::wire::MANY;

/// Of what comes in one go and is large, so many parts are read one after the other.
const PARTS: usize = 16;

/// The longest answer that is read. The driver collects an answer until it is complete, whatever the server sends.
const LARGEST: usize = 64 << 20;

/// What carries the bytes.
pub(crate) enum Carrier {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// A stream that does not read all that is there: if all tasks were answered at once, all would ask at once, and either the
/// server would work or the client, never both. Answers are read in slices while there are many, and what is asked
/// after one slice is on its way while the next is read.
pub(crate) struct Stream {
    carrier: Carrier,
    pulse: Arc<Pulse>,
    /// How many bytes a few answers have: so much is read before those who waited for it have their turn.
    slice: usize,
    /// How much was read since everything was read that was there.
    in_one_go: usize,
    /// A slice was read, and the others have not had their turn since.
    sliced: bool,
    /// How many bytes were read since the last request was over.
    unfinished: usize,
    /// How many requests were over then.
    ended: u64,
}

impl Stream {
    pub(crate) fn new(carrier: Carrier, pulse: Arc<Pulse>, slice: usize) -> Self {
        Self { carrier, pulse, slice, in_one_go: 0, sliced: false, unfinished: 0, ended: 0 }
    }

    /// Notes how much was read of what could have been. Fails once no answer can be that long.
    fn has_read(&mut self, bytes: usize, most: usize) -> io::Result<()> {
        if bytes > 0 {
            self.pulse.came();
        }
        self.sliced = bytes == most;
        self.in_one_go = if self.sliced { self.in_one_go + bytes } else { 0 };
        let ended = self.pulse.ended();
        self.unfinished = if ended == self.ended { self.unfinished + bytes } else { bytes };
        self.ended = ended;
        if self.unfinished > LARGEST {
            self.pulse.note_overlong();
            let message = format!("an answer of more than {} MiB is refused", LARGEST >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(())
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
        if self.pulse.unanswered() < MANY {
            let before = buffer.filled().len();
            ready!(on_carrier!(self, poll_read, context, buffer))?;
            let bytes = buffer.filled().len() - before;
            return Poll::Ready(self.has_read(bytes, usize::MAX));
        }
        if self.sliced {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = self.slice.max(self.in_one_go / PARTS).min(buffer.remaining());
        let mut slice = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(on_carrier!(self, poll_read, context, &mut slice))?;
        let bytes = slice.filled().len();
        buffer.advance(bytes);
        Poll::Ready(self.has_read(bytes, most))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sliced = false;
        on_carrier!(self, poll_write, context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sliced = false;
        on_carrier!(self, poll_write_vectored, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(stream) => stream.is_write_vectored(),
            Carrier::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sliced = false;
        on_carrier!(self, poll_flush, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_carrier!(self, poll_shutdown, context)
    }
}
