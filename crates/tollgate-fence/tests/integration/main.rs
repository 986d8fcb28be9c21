//! The tests of tollgate-fence as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod crowded;
mod file;
mod layer;
mod passing;
mod proxy;
mod refused;
mod untrusted;
mod waiting;

#[path = "../support/mod.rs"]
mod support;
