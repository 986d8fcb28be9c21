//! The tests of tollgate-etcd as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod again;
mod costs;
mod doctor;
mod faults;
mod fence;
mod partitions;
mod servers;
mod storm;
mod stubs;
mod together;
mod tokens;

#[path = "../support/mod.rs"]
mod support;
