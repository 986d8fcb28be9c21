//! The tests of tollgate-zookeeper as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod doctor;
mod faults;
mod late;
mod leader;
mod looks;
mod numbers;
mod queue;
mod servers;
mod storm;
mod tls;

#[path = "../support/mod.rs"]
mod support;
