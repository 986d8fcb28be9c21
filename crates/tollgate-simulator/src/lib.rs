//! The lock server, its disk, its clients and every fault between them, on one seed: no thread, no real time.
//!
//! A [`World`] has the real table and the real durable engine. Around them messages are lost, delayed, doubled and
//! reordered, the server is stopped, killed and loses its power, commits fail or take their time, clocks run at rates of
//! their own, and clients pause, give up and come back. After every step a [`Judge`](judge) compares what clients believe.
//! The same seed gives the same run. [`Mutant`]s are servers, disks and clients with one flaw, which it has to find.

mod client;
mod disk;
pub mod judge;
mod mutant;
mod random;
mod server;
mod world;

pub use judge::Violation;
pub use mutant::Mutant;
pub use world::{Report, World};
