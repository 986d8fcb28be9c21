//! What `build.rs` makes of `proto/etcd.proto`.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::all)]

tonic::include_proto!("etcdserverpb");
