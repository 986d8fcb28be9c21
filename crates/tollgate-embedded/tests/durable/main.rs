//! The durable engine: what its answers depend on, and what a start finds after a crash.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

mod crashes;
mod disk;
mod engine;
mod histories;
mod support;
