#!/bin/sh
# A `protoc` for build scripts: builds one in Rust, in a target folder of its own (the one of the build that
# runs us is locked), and has it do the work.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# What the outer build was told is not for this one.
unset CARGO_ENCODED_RUSTFLAGS RUSTFLAGS CARGO_BUILD_TARGET TARGET
CARGO_TARGET_DIR=$here/target/protoc "${CARGO:-cargo}" build --quiet --release --locked \
    --manifest-path "$here/protoc/Cargo.toml" >&2
exec "$here/target/protoc/release/protoc" "$@"
