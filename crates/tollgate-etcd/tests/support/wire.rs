//! What the requests of the backend look like on the wire.
#![allow(dead_code)]

use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::Http2;

/// A wire on which the requests are seen that change something.
pub(crate) fn http2() -> Http2 {
    Http2::new(|message| takes(message) || withdraws(message) || deletes(message))
}

/// Whether a frame does what is asked for by `operation`.
pub(crate) fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let message = Http2::message(frame);
    match operation {
        Operation::TryAcquire => takes(message) && compares_a_range(message),
        Operation::Acquire => takes(message) && !compares_a_range(message),
        Operation::Withdraw => withdraws(message) || deletes(message),
        Operation::Release => deletes(message),
        // A session is renewed over its stream.
        Operation::Extend => false,
    }
}

/// A transaction that puts a claim unless it was withdrawn.
fn takes(message: &[u8]) -> bool {
    contains(message, b"\"tollgate\":1") && contains(message, b"\x01withdrawn/")
}

fn withdraws(message: &[u8]) -> bool {
    contains(message, b"\x01withdrawn/")
        && !contains(message, b"\"tollgate\":1")
        && message.first() == Some(&0x12)
}

/// A request with nothing but the key of a claim.
fn deletes(message: &[u8]) -> bool {
    let Some((0x0a, rest)) = message.split_first().map(|(first, rest)| (*first, rest)) else { return false };
    // A length below 128 is one byte, a longer one two.
    let key = rest.iter().position(|byte| *byte < 0x80).map_or(&[][..], |last| &rest[last + 1..]);
    key.starts_with(b"/locks/") && !key.contains(&1) && ends_like_a_claim(key)
}

/// Whether a key is of one claim, and nothing follows it.
fn ends_like_a_claim(key: &[u8]) -> bool {
    let Some(at) = key.iter().rposition(|byte| *byte == b'~') else { return false };
    match &key[at + 1..] {
        [b'x' | b's'] => true,
        [b'p', limit @ ..] => !limit.is_empty() && limit.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The tag of a comparison's field 64, the end of a range.
fn compares_a_range(message: &[u8]) -> bool {
    contains(message, &[0x82, 0x04])
}

fn contains(frame: &[u8], part: &[u8]) -> bool {
    frame.windows(part.len()).any(|bytes| bytes == part)
}
