//! Any engine that Tollgate knows as a [`Service`](crate::Service): the server keeps no grant of its
//! own, so several servers may run side by side over one engine.
//!
//! # Invariants
//!
//! - What other hosts' clocks wrote into the engine means nothing here: a grant that a client may
//!   have asked for elsewhere is confirmed by an extend before it is answered.
//!   (test: over::a_client_moves_to_another_server_with_its_grant)
//! - A claim that waits keeps its place for `min(ttl, 10 s)` after its client is gone, and is
//!   withdrawn then. (test: over::a_client_that_does_not_come_back_leaves_nothing)
//! - An unknown outcome at the engine is answered as such (504), and never as a grant.
//!   (test: over::an_engine_that_is_away_is_told_and_nothing_is_granted)

mod calls;
mod claims;
mod look;
mod owner;
mod problems;
mod service;

pub use service::OverService;
