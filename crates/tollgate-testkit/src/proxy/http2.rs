//! HTTP/2, as gRPC uses it: frames of many streams on one connection.
//!
//! Headers are compressed with a state that both ends keep, so a frame with headers can be held and delayed, but never
//! left out or repeated: a request cannot be repeated on this wire, and a reply cannot be lost without the connection.

use std::collections::HashSet;

use super::protocol::{Answer, Conversation, Garbled, Protocol, Request};

/// What a client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A frame's own header: three bytes of length, a type, flags, and the number of its stream.
const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// A message's own header in gRPC: whether it is compressed, and its length.
const MESSAGE: usize = 5;

/// HTTP/2 with gRPC in it. A request is a frame with a message that is `tracked`, its reply the first headers that come
/// back on its stream. Replies must come in the order of such requests: a test sees to it that few are under way.
#[derive(Clone, Copy)]
pub struct Http2 {
    tracked: fn(&[u8]) -> bool,
}

impl Http2 {
    /// With requests whose message is `tracked`.
    pub fn new(tracked: fn(&[u8]) -> bool) -> Self {
        Self { tracked }
    }

    /// The message in a frame that was shown to a rule; nothing if there is none.
    pub fn message(frame: &[u8]) -> &[u8] {
        let is_data = frame.len() > HEADER + MESSAGE && frame[3] == DATA && !frame.starts_with(PREFACE);
        if is_data { &frame[HEADER + MESSAGE..] } else { &[] }
    }
}

impl Protocol for Http2 {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Streams { tracked: self.tracked, greeted: false, waiting: HashSet::new() })
    }
}

/// One connection.
struct Streams {
    tracked: fn(&[u8]) -> bool,
    greeted: bool,
    /// Streams with a tracked request that is not answered.
    waiting: HashSet<u32>,
}

/// The length of the first frame, its type and its stream.
fn first(bytes: &[u8]) -> Option<(usize, u8, u32)> {
    let header = bytes.first_chunk::<HEADER>()?;
    let length = HEADER + u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    let stream = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
    (bytes.len() >= length).then_some((length, header[3], stream))
}

impl Conversation for Streams {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        if !self.greeted {
            if !bytes.starts_with(&PREFACE[..PREFACE.len().min(bytes.len())]) {
                return Err(Garbled);
            }
            self.greeted = bytes.len() >= PREFACE.len();
            return Ok(self.greeted.then_some(Request { length: PREFACE.len(), answered: false }));
        }
        let Some((length, _, stream)) = first(bytes) else { return Ok(None) };
        let answered = (self.tracked)(Http2::message(&bytes[..length]));
        if answered {
            self.waiting.insert(stream);
        }
        Ok(Some(Request { length, answered }))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        let Some((length, kind, stream)) = first(bytes) else { return Ok(None) };
        let replies = kind == HEADERS && self.waiting.remove(&stream);
        Ok(Some(if replies { Answer::Reply(length) } else { Answer::Confirmation(length) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, 0, 0, 0, 0, stream][..], payload].concat()
    }

    #[test]
    fn a_reply_is_the_first_headers_on_the_stream_of_a_tracked_request() {
        let mut wire = Http2::new(|message| message.starts_with(b"yes")).conversation();
        assert_eq!(wire.request(&PREFACE[..5]), Ok(None));
        assert_eq!(wire.request(PREFACE), Ok(Some(Request { length: 24, answered: false })));
        for (message, stream, answered) in [(b"\0\0\0\0\x03yes", 3, true), (b"\0\0\0\0\x03not", 5, false)] {
            let frame = frame(DATA, stream, message);
            assert_eq!(wire.request(&frame[..frame.len() - 1]), Ok(None));
            assert_eq!(wire.request(&frame), Ok(Some(Request { length: frame.len(), answered })));
        }
        let (other, reply) = (frame(HEADERS, 5, b"h"), frame(HEADERS, 3, b"h"));
        assert_eq!(wire.answer(&other), Ok(Some(Answer::Confirmation(10))));
        assert_eq!(wire.answer(&reply), Ok(Some(Answer::Reply(10))));
        assert_eq!(wire.answer(&reply), Ok(Some(Answer::Confirmation(10))), "those are the trailers");
    }

    #[test]
    fn what_is_not_http2_is_noticed() {
        let mut wire = Http2::new(|_| true).conversation();
        assert_eq!(wire.request(b"GET / HTTP/1.1\r\n"), Err(Garbled));
    }
}
