//! The compiled messages are what the proto file says.

use std::path::Path;

/// Set, with any value, it writes them anew: `UPDATE_STUBS=1 cargo test -p tollgate-etcd stubs`.
const UPDATE: &str = "UPDATE_STUBS";

#[test]
fn the_committed_stubs_are_those_of_the_proto_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let made = tempfile::tempdir().unwrap();
    let described = protox::compile([folder.join("etcd.proto")], [&folder]).unwrap();
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .bytes(".")
        .out_dir(made.path())
        .compile_fds(described)
        .unwrap();
    let (made, committed) = (made.path().join("etcdserverpb.rs"), folder.join("etcdserverpb.rs"));
    if std::env::var_os(UPDATE).is_some() {
        std::fs::copy(&made, &committed).unwrap();
    }
    let read = |path| std::fs::read_to_string(path).unwrap();
    assert!(
        read(&made) == read(&committed),
        "proto/etcdserverpb.rs is not what proto/etcd.proto says; write it anew with \
         {UPDATE}=1 cargo test -p tollgate-etcd stubs"
    );
}
