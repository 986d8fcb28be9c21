//! What the requests of the backend look like on the wire.
#![allow(dead_code)]

use tollgate_testkit::fault::Operation;

const DELETE: i32 = 2;
const CREATE: i32 = 15;
/// The flags of an ephemeral sequential node.
const CLAIM: i32 = 3;

/// Whether a frame does what is asked for by `operation`.
pub(crate) fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    match operation {
        // Only what follows tells a claim that waits from one that does not.
        Operation::TryAcquire | Operation::Acquire => {
            opcode(frame) == Some(CREATE) && frame.ends_with(&CLAIM.to_be_bytes())
        }
        Operation::Withdraw | Operation::Release => opcode(frame) == Some(DELETE),
        // A session is kept alive by its proofs of life.
        Operation::Extend => false,
    }
}

/// After the length and the number of the request.
pub(crate) fn opcode(frame: &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(*frame.get(8..)?.first_chunk()?))
}
