//! The tests of tollgate-postgres as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod advisory;
mod crowd;
mod doctor;
mod fence;
mod gate;
mod hosts;
mod planted;
mod queue;
mod rogue;
mod sat_on;
mod schema;
mod size;
mod storm;
mod transaction;
mod trouble;

#[path = "../support/mod.rs"]
mod support;
