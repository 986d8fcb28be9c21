//! Reads what a server sends before the driver does: no password goes in clear text where it could be read, and no answer
//! is longer than memory should be spent on.
//!
//! The driver answers whatever the server asks for, and a server may ask for the password itself. It also collects a
//! message until it is complete, whatever length the server has announced.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::TryFutureExt;
use futures_util::future::MapOk;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The longest message that is read.
const LONGEST_MESSAGE: usize = 16 << 20;
/// How much is read of all that one request is answered with.
const LONGEST_ANSWER: usize = 64 << 20;
/// A message's type and its length.
const HEADER: usize = 5;
/// How much of a message's content says which way to log in the server asks for.
const METHOD: usize = 4;
/// The way that shows the server the password as it is.
const CLEARTEXT: u32 = 3;
/// What a message costs in memory beside its content: many small rows are no less than a large one.
const OVERHEAD: usize = 128;

/// What a server sent that is not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Flaw {
    #[error("the server asked for the password in clear text over an unencrypted connection")]
    Cleartext,
    #[error("the server's answer is longer than {} MiB", LONGEST_ANSWER >> 20)]
    Overlong,
}

impl Flaw {
    /// The flaw that made a connection fail, if one did.
    pub(crate) fn of(error: &tokio_postgres::Error) -> Option<Self> {
        let source = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
        source.get_ref()?.downcast_ref::<Self>().copied()
    }
}

impl From<Flaw> for io::Error {
    fn from(flaw: Flaw) -> Self {
        Self::new(io::ErrorKind::InvalidData, flaw)
    }
}

/// Where in the server's messages we are.
#[derive(Debug)]
struct Screen {
    /// Whether a request for the password as it is has to be refused.
    guards_password: bool,
    /// The beginning of the current message.
    head: [u8; HEADER + METHOD],
    /// How much of that was read.
    known: usize,
    /// How much of the current message is still to come.
    rest: usize,
    /// How much was read of the current answer.
    answered: usize,
}

impl Screen {
    fn new(guards_password: bool) -> Self {
        Self { guards_password, head: [0; HEADER + METHOD], known: 0, rest: 0, answered: 0 }
    }

    /// Looks at what came next.
    fn see(&mut self, mut bytes: &[u8]) -> Result<(), Flaw> {
        while !bytes.is_empty() {
            if self.known >= HEADER && self.rest == 0 {
                self.known = 0;
            }
            if self.known < HEADER {
                self.take_header(&mut bytes)?;
            } else {
                self.take_content(&mut bytes)?;
            }
        }
        Ok(())
    }

    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<(), Flaw> {
        self.keep(bytes, HEADER - self.known);
        if self.known < HEADER {
            return Ok(());
        }
        let [kind, length @ ..] = [self.head[0], self.head[1], self.head[2], self.head[3], self.head[4]];
        let length = u32::from_be_bytes(length) as usize;
        // The length counts itself. A smaller one is refused by the driver.
        self.rest = length.saturating_sub(4);
        if self.rest > LONGEST_MESSAGE {
            return Err(Flaw::Overlong);
        }
        match kind {
            // Ready for the next request.
            b'Z' => self.answered = 0,
            // A notification belongs to no answer, and a connection that listens gets nothing else for days.
            b'A' => {}
            _ => self.answered += OVERHEAD + self.rest,
        }
        if self.answered > LONGEST_ANSWER { Err(Flaw::Overlong) } else { Ok(()) }
    }

    fn take_content(&mut self, bytes: &mut &[u8]) -> Result<(), Flaw> {
        let asks_to_log_in = self.head[0] == b'R' && self.known < self.head.len();
        if !asks_to_log_in {
            let taken = self.rest.min(bytes.len());
            self.rest -= taken;
            *bytes = &bytes[taken..];
            return Ok(());
        }
        let before = self.known;
        self.keep(bytes, self.rest.min(self.head.len() - self.known));
        self.rest -= self.known - before;
        let [.., one, two, three, four] = self.head;
        let is_cleartext =
            self.known == self.head.len() && u32::from_be_bytes([one, two, three, four]) == CLEARTEXT;
        if is_cleartext && self.guards_password { Err(Flaw::Cleartext) } else { Ok(()) }
    }

    fn keep(&mut self, bytes: &mut &[u8], most: usize) {
        let (kept, rest) = bytes.split_at(most.min(bytes.len()));
        self.head[self.known..self.known + kept.len()].copy_from_slice(kept);
        self.known += kept.len();
        *bytes = rest;
    }
}

/// A stream of which nothing is read that has a [`Flaw`].
pub(crate) struct Screened<S> {
    stream: S,
    screen: Screen,
}

impl<S> Screened<S> {
    pub(crate) fn new(stream: S, guards_password: bool) -> Self {
        Self { stream, screen: Screen::new(guards_password) }
    }

    fn encrypted(stream: S) -> Self {
        Self::new(stream, false)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Screened<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, screen } = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(stream).poll_read(context, buffer))?;
        let seen = screen.see(&buffer.filled()[before..]);
        if seen.is_err() {
            buffer.set_filled(before);
        }
        Poll::Ready(Ok(seen?))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Screened<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Screened<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// Encrypts, and screens what was encrypted.
pub(crate) struct ScreenedTls<T>(T);

impl<T> ScreenedTls<T> {
    pub(crate) fn new(tls: T) -> Self {
        Self(tls)
    }
}

impl<S, T: TlsConnect<S>> TlsConnect<S> for ScreenedTls<T> {
    type Stream = Screened<T::Stream>;
    type Error = T::Error;
    type Future = MapOk<T::Future, fn(T::Stream) -> Self::Stream>;

    fn connect(self, stream: S) -> Self::Future {
        self.0.connect(stream).map_ok(Screened::encrypted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], content].concat()
    }

    fn login(code: u32) -> Vec<u8> {
        message(b'R', &code.to_be_bytes())
    }

    /// What comes of these bytes, in parts of each size.
    fn seen(guards_password: bool, bytes: &[u8]) -> Result<(), Flaw> {
        let of = |size: usize| {
            let mut screen = Screen::new(guards_password);
            bytes.chunks(size).try_for_each(|part| screen.see(part))
        };
        let whole = of(bytes.len());
        for size in 1..20 {
            assert_eq!(of(size), whole, "in parts of {size}");
        }
        whole
    }

    #[test]
    fn a_request_for_the_password_as_it_is_is_refused_where_that_could_be_read() {
        assert_eq!(seen(true, &login(3)), Err(Flaw::Cleartext));
        assert_eq!(seen(false, &login(3)), Ok(()));
        let later = [message(b'N', b"Shello\0\0"), message(b'S', b"a\0b\0"), login(3)].concat();
        assert_eq!(seen(true, &later), Err(Flaw::Cleartext));
    }

    #[test]
    fn other_ways_to_log_in_pass() {
        let salted = message(b'R', b"\0\0\0\x05salt");
        let scram = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        for greeting in [salted, scram, login(0)] {
            let whole = [greeting, login(0), message(b'Z', b"I")].concat();
            assert_eq!(seen(true, &whole), Ok(()));
        }
        // What looks like one within another message.
        assert_eq!(seen(true, &message(b'D', &login(3))), Ok(()));
    }

    #[test]
    fn a_message_is_refused_by_its_length_before_it_comes() {
        let mut screen = Screen::new(false);
        assert_eq!(screen.see(b"D\x7f\xff\xff\xff"), Err(Flaw::Overlong));
        let mut screen = Screen::new(false);
        assert_eq!(screen.see(b"D\0\x10\0\0"), Ok(()), "a MiB is none too many");
    }

    #[test]
    fn many_small_messages_are_refused_as_one_answer_and_not_as_many() {
        let row = message(b'D', &[0; 1 << 20]);
        let mut screen = Screen::new(false);
        let flaw = (0..100).find_map(|number| screen.see(&row).err().map(|flaw| (number, flaw)));
        assert_eq!(flaw, Some((63, Flaw::Overlong)));
        let mut screen = Screen::new(false);
        for _ in 0..200 {
            screen.see(&row).unwrap();
            screen.see(&message(b'Z', b"I")).unwrap();
        }
        let mut screen = Screen::new(false);
        let notification = message(b'A', &[0; 1 << 20]);
        (0..200).for_each(|_| screen.see(&notification).unwrap());
    }
}
