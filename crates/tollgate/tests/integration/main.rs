//! The tests of tollgate as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod blocking;
mod database_urls;
mod examples;
mod existing;
mod readme;
mod runtime;
mod urls;
mod watching;
