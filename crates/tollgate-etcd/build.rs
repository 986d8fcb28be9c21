//! Makes the stubs from the proto, without a `protoc` on anybody's machine.

use std::error::Error;

const PROTO: &str = "proto/etcd.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    // It is not used. `cargo xtask check` names one that fails, and this has the stubs made again under its eyes.
    println!("cargo::rerun-if-env-changed=PROTOC");
    let described = protox::compile([PROTO], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .bytes(".")
        .compile_fds(described)?;
    Ok(())
}
