//! The messages and calls of etcd that we use: `proto/etcd.proto`, compiled.
//!
//! The result is part of the source, so that building needs neither `protoc` nor the thirty crates of a compiler.
//! `tests/integration/stubs.rs` compares it with the proto file.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::all)]

include!("../proto/etcdserverpb.rs");
