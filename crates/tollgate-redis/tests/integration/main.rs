//! The tests of tollgate-redis as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod doctor;
mod fence;
mod gate;
mod late;
mod lost_replies;
mod outage;
mod redlock_faults;
mod redlock_protocol;
mod refused;
mod servers;
mod storm;
mod together;
mod trouble;

#[path = "../redlock_support/mod.rs"]
mod redlock_support;
#[path = "../support/mod.rs"]
mod support;
