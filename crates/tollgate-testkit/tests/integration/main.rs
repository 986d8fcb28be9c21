//! The tests of tollgate-testkit as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod choosing;
mod gates;
mod proof;
mod tracing;
