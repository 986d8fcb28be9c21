//! Whatever arrives is read or refused: no panic, and no more memory than the frame has bytes for.

use tollgate_proto::frame::{Call, MAX_FRAME_BYTES, Malformed, Reply, first};

use crate::samples::{calls, replies};

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for call in calls() {
        frames.push(Vec::new());
        call.write(1, frames.last_mut().unwrap());
    }
    for reply in replies() {
        frames.push(Vec::new());
        reply.write(1, frames.last_mut().unwrap());
    }
    frames
}

/// What was read is written as the same bytes again: two frames never mean the same.
fn check(frame: &[u8]) {
    if first(frame) != Ok(Some(frame.len())) {
        assert!(Call::read(frame).is_err() && Reply::read(frame).is_err());
        return;
    }
    let mut again = Vec::new();
    if let Ok((id, call)) = Call::read(frame)
        // A newer client's greeting is read as far as its version.
        && !matches!(&call, Call::Hello(hello) if hello.version > tollgate_proto::frame::VERSION)
    {
        call.write(id, &mut again);
        assert_eq!(again, frame);
    }
    again.clear();
    if let Ok((id, reply)) = Reply::read(frame) {
        reply.write(id, &mut again);
        // A long list may be cut into other parts.
        assert!(again == frame || matches!(reply, Reply::Seen(_)));
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..200_000 {
        let length = random.below(80);
        let mut frame: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        if length >= 9 {
            let body = u32::try_from(length - 4).unwrap();
            frame[..4].copy_from_slice(&body.to_be_bytes());
            frame[4] =
                if random.below(2) == 0 { random.below(20) as u8 } else { 60 + random.below(40) as u8 };
        }
        check(&frame);
    }
}

#[test]
fn a_frame_with_wrong_bytes_does_no_harm() {
    let (frames, mut random) = (frames(), Random(7));
    for _ in 0..200_000 {
        let mut frame = frames[random.below(frames.len())].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(frame.len());
            frame[at] = random.next() as u8;
        }
        check(&frame);
    }
}

#[test]
fn every_prefix_of_a_frame_is_incomplete_and_every_extension_is_refused() {
    for frame in frames() {
        for length in 0..frame.len() {
            assert_eq!(first(&frame[..length]), Ok(None));
        }
        let mut longer = frame.clone();
        longer.push(0);
        let body = u32::try_from(longer.len() - 4).unwrap();
        longer[..4].copy_from_slice(&body.to_be_bytes());
        let is_call = Call::read(&frame).is_ok();
        if is_call {
            assert_eq!(Call::read(&longer), Err(Malformed::Long));
        } else {
            assert_eq!(Reply::read(&longer), Err(Malformed::Long));
        }
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_before_it_is_there() {
    let length = u32::try_from(MAX_FRAME_BYTES + 1).unwrap();
    assert_eq!(first(&length.to_be_bytes()), Err(Malformed::Length(MAX_FRAME_BYTES + 1)));
    assert_eq!(first(&4_u32.to_be_bytes()), Err(Malformed::Length(4)));
    // A list that promises 65 535 entries and has none.
    let mut frame = vec![0, 0, 0, 0, 3, 0, 0, 0, 1];
    frame.extend_from_slice(&[0xff; 40]);
    frame[..4].copy_from_slice(&45_u32.to_be_bytes());
    assert!(Call::read(&frame).is_err());
}
