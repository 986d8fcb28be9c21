//! The tests of tollgate-engine as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod deadlocks;
mod model;
mod rules;
