//! Where requests and replies begin and end on a wire, and which reply answers which request.

use std::fmt;

/// A wire that the proxy understands. To add one, say where a request and an answer end; [`LengthPrefixed`]
/// and [`Lines`] show how little that is.
pub trait Protocol: Send + Sync + 'static {
    /// What is said on one connection, from its first byte.
    fn conversation(&self) -> Box<dyn Conversation>;
}

/// One connection. Requests and answers are shown to it in the order of the wire, each frame once.
pub trait Conversation: Send {
    /// The first frame of what the client has sent.
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled>;

    /// The request that was shown last never gets to the engine.
    fn lost(&mut self) {}

    /// The request that was shown last gets to the engine twice.
    fn repeated(&mut self) {}

    /// What a copy of a request needs before it on a connection of its own: the greeting of this connection. Nothing where
    /// engines need no greeting.
    fn greeting(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The first frame of what the engine has sent.
    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled>;
}

/// A whole request at the front of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// How many bytes it has.
    pub length: usize,
    /// Whether a reply comes. Replies come in the order of their requests.
    pub answered: bool,
}

/// A whole frame from the engine at the front of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answers the oldest request that waits for one.
    Reply(usize),
    /// It begins that answer, and something else comes before the rest. What becomes of the answer becomes of it.
    Part(usize),
    /// It confirms what was asked by requests that get no reply. It passes, whatever pushes are discarded.
    Confirmation(usize),
    /// Nobody asked for it.
    Push(usize),
}

/// Bytes that this protocol does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled;

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is not the protocol that the proxy was told to expect")
    }
}

impl std::error::Error for Garbled {}

/// Whatever was read at once is a frame. For wires that answer out of order or interleave, such as HTTP/2
/// (etcd): cutting, delaying and black-holing are exact, but "the reply to the n-th request" is only the
/// next bytes that come back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Protocol for Raw {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Self)
    }
}

impl Conversation for Raw {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        Ok((!bytes.is_empty()).then_some(Request { length: bytes.len(), answered: true }))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        Ok((!bytes.is_empty()).then_some(Answer::Reply(bytes.len())))
    }
}

/// A line out and a line back, as the fakes speak.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lines;

impl Protocol for Lines {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Self)
    }
}

impl Lines {
    fn first(bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1)
    }
}

impl Conversation for Lines {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        Ok(Self::first(bytes).map(|length| Request { length, answered: true }))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        Ok(Self::first(bytes).map(Answer::Reply))
    }
}

/// Four bytes that say how many follow, highest first, both ways.
#[derive(Clone, Copy)]
pub struct LengthPrefixed {
    is_push: fn(&[u8]) -> bool,
}

impl LengthPrefixed {
    /// Frames of which those are pushes whose content `is_push` recognises.
    pub fn new(is_push: fn(&[u8]) -> bool) -> Self {
        Self { is_push }
    }

    /// As ZooKeeper speaks: watches tell of their events under the number −1.
    pub fn zookeeper() -> Self {
        Self::new(|content| content.starts_with(&(-1_i32).to_be_bytes()))
    }

    fn first(bytes: &[u8]) -> Result<Option<usize>, Garbled> {
        let Some(prefix) = bytes.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| Garbled)?;
        Ok((bytes.len() - 4 >= length).then_some(length + 4))
    }
}

impl Protocol for LengthPrefixed {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(*self)
    }
}

impl Conversation for LengthPrefixed {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        Ok(Self::first(bytes)?.map(|length| Request { length, answered: true }))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        Ok(Self::first(bytes)?.map(|length| match (self.is_push)(&bytes[4..length]) {
            true => Answer::Push(length),
            false => Answer::Reply(length),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_or_not_there() {
        let mut zookeeper = LengthPrefixed::zookeeper().conversation();
        let reply = [&[0, 0, 0, 6][..], &[0, 0, 0, 1, 9, 9], &[0, 0]].concat();
        for part in 0..10 {
            assert_eq!(zookeeper.answer(&reply[..part]), Ok(None), "of {part} bytes");
        }
        assert_eq!(zookeeper.answer(&reply), Ok(Some(Answer::Reply(10))));
        let event = [&[0, 0, 0, 5][..], &[255, 255, 255, 255, 7]].concat();
        assert_eq!(zookeeper.answer(&event), Ok(Some(Answer::Push(9))));
        assert_eq!(zookeeper.answer(&[255, 0, 0, 0, 1]), Err(Garbled));
        let mut lines = Lines.conversation();
        assert_eq!(lines.request(b"{\"a\":"), Ok(None));
        assert_eq!(lines.request(b"{}\n{"), Ok(Some(Request { length: 3, answered: true })));
    }
}
