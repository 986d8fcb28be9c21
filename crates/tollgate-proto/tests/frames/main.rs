//! The frames of the native protocol: as they travel, there and back, and what is refused.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

mod damaged;
mod golden;
mod samples;
