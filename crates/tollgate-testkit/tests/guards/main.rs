//! What the core promises on any engine, tested on small ones and on engines that misbehave.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

mod adopting;
mod asking;
mod callbacks;
mod closing;
mod ensuring;
mod giving_back;
mod keeping;
mod limits;
mod memory;
mod observing;
mod panicking;
mod sessions;
mod sets;
mod suite;
mod support;
mod waiting;
