//! What tests with servers of their own share.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod wire;
