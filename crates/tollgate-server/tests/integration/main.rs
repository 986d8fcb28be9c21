//! The server without sockets, and over sockets.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

mod http;
mod service;
mod table;
