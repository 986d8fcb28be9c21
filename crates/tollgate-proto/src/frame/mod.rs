//! The native protocol: frames between the server and `tollgate-remote`.
//!
//! A connection begins with [`MAGIC`] and a [`Call::Hello`], which the server answers with
//! [`Reply::Welcome`] or [`Reply::Refused`]. From then on both sides send frames whenever they
//! like:
//!
//! ```text
//! length: u32   how many bytes follow; at most MAX_FRAME_BYTES
//! kind:   u8    which message
//! id:     u32   the number of the call on its connection; 0 in a message that answers no call
//! body
//! ```
//!
//! Numbers are big-endian. A string is a u16 length and UTF-8. An optional value is a byte 0 or 1,
//! and the value after 1.
//!
//! - **Calls are numbered from 1 upwards** by the client, and every frame of the client has the
//!   next number. [`Reply::Granted`] names the last call that the server had read, so that the
//!   client knows from which of its own send times on the lease counts at the latest.
//! - **Decoding is strict:** an unknown kind, a byte too many, a number out of range and a flag
//!   that is neither 0 nor 1 are [`Malformed`], and the connection ends. What a frame allocates is
//!   bounded by its length, which is checked before the frame is read.
//! - **Versions:** the client sends the newest version that it speaks, the server answers with the
//!   one that both use from then on, or refuses.

mod call;
mod reader;
mod reply;
mod who;
mod writer;

pub use call::{Call, ClaimCall, Hello, Lane, kind};
pub use reply::{Gone, Happened, HolderSeen, LockSeen, Refusal, Reply, WaiterSeen, Welcome};
pub use who::{Stake, Who};

/// What a client sends first. No HTTP request and no TLS handshake begins like this.
pub const MAGIC: [u8; 4] = *b"TLG\x01";
/// The version of the protocol.
pub const VERSION: u16 = 1;
/// The most bytes of a frame after its length.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;
/// The bytes of a frame before its body: length, kind and id.
pub const HEADER_BYTES: usize = 9;
/// About how many bytes of holders and waiters one frame has; longer lists are sent in several.
pub const PART_BYTES: usize = 32 * 1024;

/// Bytes that this protocol does not have. The connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The length of a frame is above the limit, or too small for a header.
    #[error("a frame has {0} bytes, and the limit is {MAX_FRAME_BYTES}")]
    Length(usize),
    /// The kind of a frame is unknown.
    #[error("a frame is of the unknown kind {0}")]
    Kind(u8),
    /// The body of a frame is shorter than its kind says.
    #[error("a frame ends in the middle of a value")]
    Short,
    /// The body of a frame is longer than its kind says.
    #[error("a frame has bytes after its last value")]
    Long,
    /// A value cannot be what it stands for.
    #[error("a frame has an invalid {0}")]
    Value(&'static str),
}

/// The length of the first frame in `bytes`, with its own four bytes; `None` if not all of it is
/// there.
///
/// ```
/// use tollgate_proto::frame::{Call, first};
///
/// let mut bytes = Vec::new();
/// Call::Ping.write(7, &mut bytes);
/// assert_eq!(first(&bytes), Ok(Some(bytes.len())));
/// assert_eq!(first(&bytes[..5]), Ok(None));
/// assert!(first(&[0xff; 4]).is_err());
/// ```
pub fn first(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(prefix) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix) as usize;
    if !(HEADER_BYTES - 4..=MAX_FRAME_BYTES).contains(&length) {
        return Err(Malformed::Length(length));
    }
    Ok((bytes.len() - 4 >= length).then_some(length + 4))
}
