//! The native protocol's side of the server: connections of `tollgate-remote`.
//!
//! [`serve`] is one connection. It reads everything that has arrived, applies it to the table, and
//! writes all answers at once; there is no task, channel or boxed future for a call. What the table
//! answers later goes into the connection's outbox and wakes it.
//!
//! # Invariants
//!
//! - A frame is read only after its length was checked, and a client that does not introduce itself
//!   or does not answer a ping is dropped. (test: native::a_client_that_is_silent_is_dropped)
//! - The end of a connection ends no grant, and waiting claims keep their places for a while.
//!   (test: native::a_claim_keeps_its_place_when_its_connection_ends)
//! - A grant names the last call that was read, and how long after that the lease ends.
//!   (test: native::a_hand_over_counts_from_the_last_call_that_was_read)
//! - Only the client that holds a lock is told its owner id.
//!   (test: native::a_break_is_told_to_the_holder_alone)

mod calls;
mod connection;
mod outbox;
mod registry;
mod shown;

pub use connection::{refuse, serve};
pub(crate) use registry::Registry;
pub use tollgate_proto::frame::{MAGIC, Refusal};
