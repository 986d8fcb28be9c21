//! Locks on Tollgate's own server, over its native protocol.
//!
//! # Layout
//!
//! - `backend` is the contract; `acquire` asks for locks, and asks again when a connection is lost.
//! - `links` has the connections: one for each runtime that uses the client. `link` is one of them,
//!   as callers see it, and `driver` the task that reads and writes it. `calls` knows which calls
//!   are open on a connection, and when each was sent.
//! - `gate` keeps marks on the server, and `doctor` says what a server promises.
//!
//! # Invariants
//!
//! - A deadline counts from the send time of a call that the server had read before it gave the
//!   grant's remaining time. (test: places::a_hand_over_counts_from_a_call_that_was_sent_before_it)
//! - Only an acquire is repeated when its answer is lost: the server knows the claim by its owner
//!   id and gives the same place or grant again. (test:
//!   places::a_waiter_keeps_its_place_when_its_connection_is_cut)
//! - A connection that owes answers and is silent for some seconds is closed.
//!   (test: conformance::an_acquire_into_a_black_hole_can_be_given_up)
//! - In `sync`, a holder keeps its lock when the server is killed and started again.
//!   (test: restarts::a_holder_keeps_its_lock_when_the_server_is_killed)

mod acquire;
mod address;
mod backend;
mod calls;
mod capabilities;
mod config;
mod details;
mod doctor;
mod driver;
mod error;
mod events;
mod gate;
mod link;
mod links;

pub use backend::RemoteBackend;
pub use config::{Address, RemoteConfig};
pub use doctor::examine;
pub use gate::RemoteGate;
