//! The `memory:` backend: the lock engine, run in this process.
//!
//! `heart.rs` feeds the engine commands and time and passes on what it decides; `backend.rs` is the
//! contract. Every decision is made in `tollgate-engine`.
//!
//! - There is one engine per process and name, so that two parts of a program that connect to one
//!   name exclude each other
//!   (test: guards::memory::engines_of_one_name_are_one_and_of_two_names_are_two). It lives as long
//!   as the process, because tokens must not start again.
//! - The engine reads the same clock as its holders. So a deadline counts from the engine's own
//!   expiry, less the margin.
//! - It detects deadlocks, so a dropped guard and a dropped acquire end at once, and not in the
//!   background (test: conformance::a_party_that_dropped_a_lock_may_take_it_again).
//!
//! `guards::…` is a test in `crates/tollgate-testkit/tests/guards`, `conformance::…` a case of the
//! suite.

mod backend;
#[cfg(feature = "durable")]
pub mod durable;
mod events;
mod heart;

pub use backend::MemoryBackend;
