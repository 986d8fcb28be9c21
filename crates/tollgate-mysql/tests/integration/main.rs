//! The tests of tollgate-mysql as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod doctor;
mod fence;
mod gate;
mod lease;
mod left_behind;
mod open_transaction;
mod planted;
mod revoking;
mod rogue;
mod sat_on;
mod session;
mod storm;
mod transaction;
mod transaction_beside;
mod trouble;
mod waiting;

#[path = "../support/mod.rs"]
mod support;
