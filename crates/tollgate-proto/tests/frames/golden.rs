//! Every frame as it travels. Clients and servers of different versions meet: these bytes stay.

use tollgate_proto::frame::{Call, LockSeen, MAX_FRAME_BYTES, Reply, WaiterSeen, Who, first};
use tollgate_types::{LockName, Mode};

use crate::samples::{calls, replies};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/frames/golden-v1.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn call_frame(call: &Call<'_>, id: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    call.write(id, &mut frame);
    frame
}

fn reply_frame(reply: &Reply<'_>, id: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    reply.write(id, &mut frame);
    frame
}

#[test]
fn frames_are_written_as_they_always_were() {
    let calls = calls().into_iter().map(|call| format!("call {}", hex(&call_frame(&call, 0x0102_0304))));
    let replies = replies().into_iter().map(|reply| format!("reply {}", hex(&reply_frame(&reply, 5))));
    let written = calls.chain(replies).collect::<Vec<_>>().join("\n") + "\n";
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        std::fs::write(FILE, &written).unwrap();
    }
    assert_eq!(written, std::fs::read_to_string(FILE).unwrap());
}

#[test]
fn frames_are_read_as_they_were_written() {
    for call in calls() {
        let frame = call_frame(&call, 3);
        assert_eq!(first(&frame), Ok(Some(frame.len())));
        assert_eq!(Call::read(&frame), Ok((3, call)));
    }
    for reply in replies() {
        let frame = reply_frame(&reply, 4);
        assert_eq!(first(&frame), Ok(Some(frame.len())));
        assert_eq!(Reply::read(&frame), Ok((4, reply)));
    }
}

#[test]
fn a_long_queue_is_sent_in_parts_that_fit() {
    let (host, value) = ("h".repeat(255), "v".repeat(4096));
    let who = Who { host: &host, meta: vec![("", &value)], ..Who::default() };
    let waiters = vec![WaiterSeen { mode: Mode::Exclusive, who }; 200];
    let lock = LockSeen { name: LockName::new("a").unwrap(), holders: Vec::new(), waiters };
    let bytes = reply_frame(&Reply::Seen(lock.clone()), 8);
    let (mut rest, mut seen) = (&bytes[..], Vec::new());
    while let Some(length) = first(rest).unwrap() {
        assert!(length <= MAX_FRAME_BYTES + 4);
        match Reply::read(&rest[..length]).unwrap() {
            (8, Reply::Seen(part)) => seen.extend(part.waiters),
            other => panic!("{other:?}"),
        }
        rest = &rest[length..];
    }
    assert!(rest.is_empty());
    assert_eq!(seen, lock.waiters);
}
