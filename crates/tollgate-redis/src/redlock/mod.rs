//! Locks on several independent Redises: the `redlock://` backend. A majority decides, and tokens are real.
//!
//! ```text
//! <prefix><name>             the lock on a node: "OWNER TOKEN SENT DETAILS" with a ttl, ~ before the token if it was taken
//!                            without a script. Other clients see a key that is held
//! {<prefix><name>}:fence     F, the last token that this node gave for the name: a sorted set with one member, f
//! {<prefix><name>}:revoked   the OWNER whose lock was broken last: it is not renewed. It ends some time after that lock's end
//! tollgate:member:RUN_ID     G. The node votes as long as it runs under this id and has this key, with tokens above G
//! tollgate:member            "RUN_ID G MAX_TTL", what the node remembers for its next run
//! tollgate:recovery          who is making the node a voter
//! tollgate:empty             since when it is known that the node has forgotten everything
//! ```
//!
//! A lock that nobody wants is taken by plain commands (`take.rs`): one token is proposed to all nodes, and each says of a
//! token once that it was larger than F. Where a majority does not agree, scripts come in (`acquire.rs`): each node draws a
//! token of its own, the hint or `max(F, G) + 1`, and where they differ a second round trip brings them to the highest. A
//! grant is a majority that stands at one token, so any two grants meet at a node, and its counter has put them in order.
//! No clock has a part in that.
//!
//! A node that restarted may have forgotten what it promised. It has another run id then, does not vote, and becomes a
//! voter again when everything that it may have forgotten has ended (`recovery.rs`).
//!
//! `quorum.rs` adds answers up, `round.rs` asks all nodes, `take.rs`, `acquire.rs`, `renew.rs`, `release.rs` and `look.rs` are what
//! is asked, `lanes.rs` has the connections, `node.rs` who is set aside because it does not answer, and `backend.rs` is the
//! contract.

mod acquire;
mod backend;
mod capabilities;
mod config;
mod init;
mod lanes;
mod link;
mod look;
mod node;
mod quorum;
mod recovery;
mod release;
mod renew;
mod round;
mod script;
mod take;
mod trouble;
mod voter;

pub use backend::RedlockBackend;
pub(crate) use capabilities::capabilities;
pub use config::RedlockConfig;
pub use init::{Initialized, init};
#[cfg(test)]
pub(crate) use script::ALL as REDLOCK_SCRIPTS;
#[doc(hidden)]
pub use script::redlock_hash_of;
pub(crate) use script::{RECORD, member_of};
