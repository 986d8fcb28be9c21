//! RESP2 and RESP3, as Redis speaks them.

use super::protocol::{Answer, Conversation, Garbled, Protocol, Request};

/// Redis: pipelined commands, a reply to each, and pub/sub.
///
/// Subscriptions are confirmed once per channel, so the commands that change them count as unanswered. On RESP3 pushes are marked. On RESP2 they are arrays like any other, and are told apart by
/// their first word, on connections that have subscribed to something. Not understood: `MONITOR`, and
/// `CLIENT REPLY`, which leaves commands without replies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resp;

impl Protocol for Resp {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Talk::default())
    }
}

#[derive(Default)]
struct Talk {
    /// Pushes are marked from here on.
    marks_pushes: bool,
    /// Unmarked pushes may come.
    subscribed: bool,
}

impl Conversation for Talk {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        let Some(length) = command(bytes)? else { return Ok(None) };
        let mut words = Words::of(&bytes[..length]);
        let name = words.next().unwrap_or_default();
        let subscribes = SUBSCRIPTIONS.iter().any(|word| name.eq_ignore_ascii_case(word));
        self.subscribed |= subscribes;
        self.marks_pushes |= name.eq_ignore_ascii_case(b"HELLO") && words.next() == Some(b"3");
        Ok(Some(Request { length, answered: !subscribes }))
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        let Some(length) = value(bytes, 0)? else { return Ok(None) };
        let frame = &bytes[..length];
        let may_be_push = match frame[0] {
            b'>' => true,
            b'*' => self.subscribed && !self.marks_pushes,
            _ => false,
        };
        let word = if may_be_push { Words::of(frame).next().unwrap_or_default() } else { b"" };
        Ok(Some(if SUBSCRIPTIONS.contains(&word) {
            Answer::Confirmation(length)
        } else if frame[0] == b'>' || MESSAGES.contains(&word) {
            Answer::Push(length)
        } else {
            Answer::Reply(length)
        }))
    }
}

const SUBSCRIPTIONS: &[&[u8]] =
    &[b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe"];
const MESSAGES: &[&[u8]] = &[b"message", b"pmessage", b"smessage"];

/// More levels than any reply has.
const DEEPEST: usize = 64;

/// The length of the first command: an array of bulk strings, or a line as people type it.
fn command(bytes: &[u8]) -> Result<Option<usize>, Garbled> {
    match bytes.first() {
        None => Ok(None),
        Some(b'*') => value(bytes, 0),
        Some(_) => Ok(line(bytes)),
    }
}

/// The length of the first value, with everything in it.
fn value(bytes: &[u8], depth: usize) -> Result<Option<usize>, Garbled> {
    if depth > DEEPEST {
        return Err(Garbled);
    }
    let Some(kind) = bytes.first() else { return Ok(None) };
    let Some(head) = line(bytes) else { return Ok(None) };
    match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Ok(Some(head)),
        b'$' | b'!' | b'=' => {
            let whole = count(bytes, head)?.map_or(head, |length| head + length + 2);
            Ok((bytes.len() >= whole).then_some(whole))
        }
        b'*' | b'~' | b'>' => values(bytes, head, count(bytes, head)?.unwrap_or(0), depth),
        b'%' => values(bytes, head, count(bytes, head)?.unwrap_or(0) * 2, depth),
        // Attributes belong to the value after them.
        b'|' => values(bytes, head, count(bytes, head)?.unwrap_or(0) * 2 + 1, depth),
        _ => Err(Garbled),
    }
}

fn values(bytes: &[u8], mut end: usize, count: usize, depth: usize) -> Result<Option<usize>, Garbled> {
    for _ in 0..count {
        match value(&bytes[end..], depth + 1)? {
            Some(length) => end += length,
            None => return Ok(None),
        }
    }
    Ok(Some(end))
}

/// The length of the first line, with its end.
fn line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|end| end == b"\r\n").map(|at| at + 2)
}

/// The number in the first line, which has `head` bytes; none for a null.
fn count(bytes: &[u8], head: usize) -> Result<Option<usize>, Garbled> {
    let text = std::str::from_utf8(&bytes[1..head - 2]).map_err(|_| Garbled)?;
    match text.parse::<i32>().map_err(|_| Garbled)? {
        -1 => Ok(None),
        number => usize::try_from(number).map(Some).map_err(|_| Garbled),
    }
}

/// The bulk strings at the front of a whole array, or the words of a whole line.
struct Words<'a> {
    rest: &'a [u8],
    typed: bool,
}

impl<'a> Words<'a> {
    fn of(frame: &'a [u8]) -> Self {
        match frame.first() {
            Some(b'*' | b'>') => Self { rest: &frame[line(frame).unwrap_or(frame.len())..], typed: false },
            _ => Self { rest: frame.trim_ascii_end(), typed: true },
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.typed {
            let mut parts = self.rest.splitn(2, |byte| *byte == b' ');
            let word = parts.next().filter(|word| !word.is_empty())?;
            self.rest = parts.next().unwrap_or_default();
            return Some(word);
        }
        let whole = value(self.rest, 0).ok()??;
        let (frame, rest) = self.rest.split_at(whole);
        self.rest = rest;
        (frame[0] == b'$').then(|| frame.get(line(frame)?..whole - 2))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(talk: &mut dyn Conversation, bytes: &[u8]) -> Answer {
        for part in 0..bytes.len() {
            assert_eq!(talk.answer(&bytes[..part]), Ok(None), "of {part} bytes of {bytes:?}");
        }
        talk.answer(&[bytes, b"+next"].concat()).unwrap().expect("a whole frame")
    }

    #[test]
    fn every_kind_of_reply_is_framed() {
        let mut talk = Resp.conversation();
        let replies: &[&[u8]] = &[
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":12\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"(123456789\r\n",
            b"=7\r\ntxt:abc\r\n",
            b"~1\r\n+a\r\n",
            b"%1\r\n+key\r\n*1\r\n:1\r\n",
            b"|1\r\n+ttl\r\n:1\r\n+OK\r\n",
        ];
        for reply in replies {
            assert_eq!(answer(&mut *talk, reply), Answer::Reply(reply.len()), "{reply:?}");
        }
        assert_eq!(talk.answer(b"HTTP/1.1 200\r\n"), Err(Garbled));
        assert_eq!(talk.answer(b"$x\r\n"), Err(Garbled));
    }

    #[test]
    fn commands_are_framed_one_by_one() {
        let mut talk = Resp.conversation();
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        assert_eq!(talk.request(&get[..15]), Ok(None));
        let two = [&get[..], get].concat();
        assert_eq!(talk.request(&two), Ok(Some(Request { length: get.len(), answered: true })));
        assert_eq!(talk.request(b"PING\r\n"), Ok(Some(Request { length: 6, answered: true })));
    }

    #[test]
    fn pushes_are_told_from_replies_in_both_versions() {
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
        let mut talk = Resp.conversation();
        assert_eq!(answer(&mut *talk, message), Answer::Reply(message.len()), "a list that looks like one");
        let subscribed = talk.request(b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n").unwrap();
        assert!(!subscribed.expect("a whole command").answered);
        let confirmed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        assert_eq!(answer(&mut *talk, confirmed), Answer::Confirmation(confirmed.len()));
        assert_eq!(answer(&mut *talk, message), Answer::Push(message.len()));
        let pong = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        assert_eq!(answer(&mut *talk, pong), Answer::Reply(pong.len()));

        let mut talk = Resp.conversation();
        talk.request(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n").unwrap();
        talk.request(b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n").unwrap();
        let confirmed = b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        assert_eq!(answer(&mut *talk, confirmed), Answer::Confirmation(confirmed.len()));
        let marked = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
        assert_eq!(answer(&mut *talk, marked), Answer::Push(marked.len()));
        assert_eq!(answer(&mut *talk, message), Answer::Reply(message.len()), "pushes are marked here");
    }
}
