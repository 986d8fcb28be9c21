//! PostgreSQL's protocol, version 3.

use super::protocol::{Answer, Conversation, Garbled, Protocol, Request};

/// PostgreSQL: a request is everything up to the message that asks for an answer (`Sync`, a simple `Query`, a
/// password, the start), its reply everything up to `ReadyForQuery`, or up to the question for a password.
///
/// A notification is a push, also in the middle of a reply. Not understood: `COPY`, and `Flush`, which asks for
/// half a reply. Where both ends agree on TLS, whatever was read at once is a frame from there on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Postgres;

impl Protocol for Postgres {
    fn conversation(&self) -> Box<dyn Conversation> {
        Box::new(Talk::default())
    }
}

#[derive(Default)]
struct Talk {
    /// The client has said who it is; messages have a type from there on.
    started: bool,
    /// The client has asked whether the server encrypts, and waits for a letter.
    asked_to_encrypt: bool,
    encrypted: bool,
}

/// What a first message can be instead of a start: their numbers are versions that there will never be.
const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

impl Conversation for Talk {
    fn request(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        if self.encrypted {
            return Ok((!bytes.is_empty()).then_some(Request { length: bytes.len(), answered: true }));
        }
        if !self.started {
            return self.first(bytes);
        }
        let mut length = 0;
        while let Some(message) = Message::first(&bytes[length..])? {
            length += message.length;
            match message.kind {
                b'Q' | b'S' | b'p' | b'F' => return Ok(Some(Request { length, answered: true })),
                b'X' => return Ok(Some(Request { length, answered: false })),
                _ => {}
            }
        }
        Ok(None)
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Garbled> {
        if self.encrypted {
            return Ok((!bytes.is_empty()).then_some(Answer::Reply(bytes.len())));
        }
        if self.asked_to_encrypt {
            let Some(letter) = bytes.first() else { return Ok(None) };
            self.asked_to_encrypt = false;
            self.encrypted = matches!(letter, b'S' | b'G');
            return Ok(Some(Answer::Reply(1)));
        }
        let mut length = 0;
        while let Some(message) = Message::first(&bytes[length..])? {
            match message.kind {
                b'A' if length == 0 => return Ok(Some(Answer::Push(message.length))),
                b'A' => return Ok(Some(Answer::Part(length))),
                _ => length += message.length,
            }
            if message.kind == b'Z' || message.asks_for_a_password() {
                return Ok(Some(Answer::Reply(length)));
            }
        }
        Ok(None)
    }
}

impl Talk {
    /// What a client says before messages have types.
    fn first(&mut self, bytes: &[u8]) -> Result<Option<Request>, Garbled> {
        let (Some(length), Some(version)) = (number(bytes), bytes.get(4..).and_then(number)) else {
            return Ok(None);
        };
        let length = length as usize;
        if !(8..=10_000).contains(&length) {
            return Err(Garbled);
        }
        if bytes.len() < length {
            return Ok(None);
        }
        match version {
            SSL | GSS => self.asked_to_encrypt = true,
            CANCEL => return Ok(Some(Request { length, answered: false })),
            _ if version >> 16 == 3 => self.started = true,
            _ => return Err(Garbled),
        }
        Ok(Some(Request { length, answered: true }))
    }
}

/// A message with a type.
struct Message<'a> {
    kind: u8,
    length: usize,
    content: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first one, if it is whole.
    fn first(bytes: &'a [u8]) -> Result<Option<Self>, Garbled> {
        let Some(kind) = bytes.first().copied() else { return Ok(None) };
        if !kind.is_ascii_alphanumeric() {
            return Err(Garbled);
        }
        let Some(counted) = number(&bytes[1..]) else { return Ok(None) };
        // It counts itself, and not the type.
        if counted < 4 {
            return Err(Garbled);
        }
        let length = counted as usize + 1;
        Ok(bytes.get(5..length).map(|content| Self { kind, length, content }))
    }

    /// Whether the server waits for what it asks for here. It does not after `AuthenticationOk` (0) and the last
    /// word of SCRAM (12).
    fn asks_for_a_password(&self) -> bool {
        self.kind == b'R' && !matches!(number(self.content), Some(0 | 12))
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), content].concat()
    }

    fn start(version: u32) -> Vec<u8> {
        [&8_u32.to_be_bytes()[..], &version.to_be_bytes()].concat()
    }

    fn asked(length: usize) -> Result<Option<Request>, Garbled> {
        Ok(Some(Request { length, answered: true }))
    }

    fn replied(length: usize) -> Result<Option<Answer>, Garbled> {
        Ok(Some(Answer::Reply(length)))
    }

    fn begun() -> Box<dyn Conversation> {
        let mut wire = Postgres.conversation();
        assert_eq!(wire.request(&start(3 << 16)), asked(8));
        wire
    }

    #[test]
    fn a_request_ends_where_an_answer_is_asked_for() {
        let mut wire = begun();
        let prepare = [message(b'P', b"s\0select 1\0"), message(b'D', b"Ss\0"), message(b'S', b"")].concat();
        for part in 0..prepare.len() {
            assert_eq!(wire.request(&prepare[..part]), Ok(None), "of {part} bytes");
        }
        let execute = [message(b'B', b"\0s\0"), message(b'E', b"\0"), message(b'S', b"")].concat();
        assert_eq!(wire.request(&[&prepare[..], &execute].concat()), asked(prepare.len()));
        assert_eq!(wire.request(&execute), asked(execute.len()));
        assert_eq!(wire.request(&message(b'Q', b"select 1\0")), asked(14));
        assert_eq!(wire.request(&message(b'X', b"")), Ok(Some(Request { length: 5, answered: false })));
    }

    #[test]
    fn a_reply_ends_when_the_server_is_ready_or_asks_for_a_password() {
        let mut wire = begun();
        let salt = message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]);
        assert_eq!(wire.answer(&salt), replied(salt.len()));
        assert_eq!(wire.request(&message(b'p', b"md5\0")), asked(9));
        let welcome =
            [message(b'R', &[0; 4]), message(b'S', b"a\0b\0"), message(b'Z', b"I"), message(b'1', b"")];
        let whole = welcome[..3].concat();
        for part in 0..whole.len() {
            assert_eq!(wire.answer(&whole[..part]), Ok(None), "of {part} bytes");
        }
        assert_eq!(wire.answer(&welcome.concat()), replied(whole.len()));
    }

    #[test]
    fn a_notification_is_a_push_wherever_it_comes() {
        let mut wire = begun();
        let notification = message(b'A', b"\0\0\0\x01channel\0\0");
        let (done, ready) = (message(b'C', b"SELECT 1\0"), message(b'Z', b"I"));
        let push = Ok(Some(Answer::Push(notification.len())));
        assert_eq!(wire.answer(&notification), push);
        let reply = [&done[..], &notification, &ready].concat();
        assert_eq!(wire.answer(&reply), Ok(Some(Answer::Part(done.len()))));
        assert_eq!(wire.answer(&reply[done.len()..]), push);
        assert_eq!(wire.answer(&ready), replied(ready.len()));
    }

    #[test]
    fn who_asks_for_encryption_is_answered_by_a_letter() {
        let mut wire = Postgres.conversation();
        assert_eq!(wire.request(&start(SSL)), asked(8));
        assert_eq!(wire.answer(b"N"), replied(1));
        assert_eq!(wire.request(&start(3 << 16)), asked(8));
        let mut wire = Postgres.conversation();
        assert_eq!(wire.request(&start(SSL)), asked(8));
        assert_eq!(wire.answer(b"S"), replied(1));
        assert_eq!(wire.request(&[22, 3, 1]), asked(3), "it cannot be read any more");
        assert_eq!(wire.answer(&[22, 3, 3]), replied(3));
    }

    #[test]
    fn what_is_not_postgres_is_noticed() {
        assert_eq!(Postgres.conversation().request(b"GET / HTTP/1.1\r\n"), Err(Garbled));
        assert_eq!(Postgres.conversation().request(&start(2 << 16)), Err(Garbled));
        assert_eq!(begun().request(&[b'Q', 0, 0, 0, 3]), Err(Garbled));
        assert_eq!(begun().answer(b"\0\0\0\0\0"), Err(Garbled));
    }
}
