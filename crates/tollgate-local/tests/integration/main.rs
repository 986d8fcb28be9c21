//! The tests of tollgate-local as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod backend;
mod gate;
mod inherit;
mod many;
mod processes;
mod shared_folder;
mod trouble;

#[path = "../support/mod.rs"]
mod support;
