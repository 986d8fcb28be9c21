//! The server without sockets, and over sockets.

// A test's panic is its verdict.
#![allow(clippy::unwrap_used)]

mod calls;
mod http;
mod native;
mod openapi;
mod service;
mod table;
