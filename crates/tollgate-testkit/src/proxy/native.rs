//! The frames of Tollgate's own server.

use std::collections::HashMap;

use super::protocol::{Answer, Conversation, Garbled, Protocol, Request};

/// What a client sends before its first frame.
const MAGIC: &[u8] = b"TLG\x01";
/// Length, kind and number of a frame.
const HEADER: usize = 9;
/// The longest frame, after its length.
const LONGEST: usize = 64 * 1024;
/// The kinds of calls that are tracked: acquire, extend, release, withdraw.
const TRACKED: std::ops::RangeInclusive<u8> = 2..=6;

/// Numbered calls, and answers in whatever order. A call about a claim is a request, and the first
/// frame with its number is its reply: for an acquire that waits, that it waits. What comes later
/// with the same number was not asked for. Replies must come in the order of such calls: a test
/// sees to it that few are under way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl Native {
    /// The kind of the call in a frame that was shown to a rule.
    pub fn kind(frame: &[u8]) -> Option<u8> {
        first(frame).ok().flatten().map(|(_, kind, _)| kind)
    }
}

impl Protocol for Native {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Talk::default())
    }
}

#[derive(Default)]
struct Talk {
    /// What the client has said to introduce itself.
    greeting: Vec<u8>,
    /// The number of the call that was shown last, if it is tracked.
    last: Option<u32>,
    /// How often each tracked call is to be answered.
    waiting: HashMap<u32, usize>,
}

/// The length of the first frame, its kind and its number.
fn first(bytes: &[u8]) -> Result<Option<(usize, u8, u32)>, Garbled> {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let body = u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize;
    if !(HEADER - 4..=LONGEST).contains(&body) {
        return Err(Garbled);
    }
    let number = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    Ok((bytes.len() >= body + 4).then_some((body + 4, header[4], number)))
}

impl Conversation for Talk {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        if self.greeting.is_empty() {
            if !bytes.starts_with(&MAGIC[..MAGIC.len().min(bytes.len())]) {
                return Err(Garbled);
            }
            let is_whole = bytes.len() >= MAGIC.len();
            self.greeting.extend(MAGIC.iter().filter(|_| is_whole));
            return Ok(is_whole.then_some(Request { length: MAGIC.len(), answered: false }));
        }
        let Some((length, kind, number)) = first(bytes)? else { return Ok(None) };
        if self.greeting.len() == MAGIC.len() {
            self.greeting.extend_from_slice(&bytes[..length]);
        }
        let answered = TRACKED.contains(&kind);
        self.last = answered.then_some(number);
        if answered {
            *self.waiting.entry(number).or_default() += 1;
        }
        Ok(Some(Request { length, answered }))
    }

    fn lost(&mut self) {
        if let Some(number) = self.last {
            self.waiting.remove(&number);
        }
    }

    fn repeated(&mut self) {
        if let Some(number) = self.last {
            *self.waiting.entry(number).or_default() += 1;
        }
    }

    fn greeting(&self) -> Vec<u8> {
        self.greeting.clone()
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        let Some((length, _, number)) = first(bytes)? else { return Ok(None) };
        if let Some(left) = self.waiting.get_mut(&number) {
            *left -= 1;
            if *left == 0 {
                self.waiting.remove(&number);
            }
            return Ok(Some(Answer::Reply(length)));
        }
        Ok(Some(if number == 0 { Answer::Push(length) } else { Answer::Confirmation(length) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, number: u8) -> Vec<u8> {
        vec![0, 0, 0, 6, kind, 0, 0, 0, number, 7]
    }

    #[test]
    fn a_reply_is_the_first_frame_with_the_number_of_a_tracked_call() {
        let mut wire = Native.conversation();
        assert_eq!(wire.request(&MAGIC[..2]), Ok(None));
        assert_eq!(wire.request(MAGIC), Ok(Some(Request { length: 4, answered: false })));
        for (kind, number, answered) in [(1, 1, false), (3, 2, true), (16, 3, false), (5, 4, true)] {
            let call = frame(kind, number);
            assert_eq!(wire.request(&call[..9]), Ok(None));
            assert_eq!(wire.request(&call), Ok(Some(Request { length: 10, answered })));
        }
        assert_eq!(wire.answer(&frame(67, 2)), Ok(Some(Answer::Reply(10))));
        assert_eq!(wire.answer(&frame(88, 3)), Ok(Some(Answer::Confirmation(10))));
        assert_eq!(wire.answer(&frame(66, 2)), Ok(Some(Answer::Confirmation(10))), "it was answered");
        assert_eq!(wire.answer(&frame(90, 0)), Ok(Some(Answer::Push(10))));
        assert_eq!(wire.answer(&frame(76, 4)), Ok(Some(Answer::Reply(10))));
    }

    #[test]
    fn a_call_that_is_sent_twice_is_answered_twice_and_a_lost_one_never() {
        let mut wire = Native.conversation();
        wire.request(MAGIC).unwrap();
        wire.request(&frame(5, 2)).unwrap();
        wire.repeated();
        assert_eq!(wire.answer(&frame(76, 2)), Ok(Some(Answer::Reply(10))));
        assert_eq!(wire.answer(&frame(76, 2)), Ok(Some(Answer::Reply(10))));
        wire.request(&frame(5, 3)).unwrap();
        wire.lost();
        assert_eq!(wire.answer(&frame(76, 3)), Ok(Some(Answer::Confirmation(10))));
    }

    #[test]
    fn what_is_not_the_protocol_is_noticed() {
        assert_eq!(Native.conversation().request(b"GET / HTTP/1.1\r\n"), Err(Garbled));
        assert_eq!(Native.conversation().answer(&[0xff; 9]), Err(Garbled));
    }
}
