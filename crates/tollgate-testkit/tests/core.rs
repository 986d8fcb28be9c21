//! What the core promises on any engine, tested on small ones and on engines that misbehave.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

#[path = "core/adopting.rs"]
mod adopting;
#[path = "core/asking.rs"]
mod asking;
#[path = "core/callbacks.rs"]
mod callbacks;
#[path = "core/closing.rs"]
mod closing;
#[path = "core/ensuring.rs"]
mod ensuring;
#[path = "core/giving_back.rs"]
mod giving_back;
#[path = "core/keeping.rs"]
mod keeping;
#[path = "core/memory.rs"]
mod memory;
#[path = "core/panicking.rs"]
mod panicking;
#[path = "core/sessions.rs"]
mod sessions;
#[path = "core/sets.rs"]
mod sets;
#[path = "core/suite.rs"]
mod suite;
#[path = "core/support.rs"]
mod support;
