//! `memory:` under the suite every backend must pass.

#[path = "../../tollgate-testkit/tests/support/memory.rs"]
mod memory;

use std::sync::Arc;

use tollgate_testkit::conformance;

fn main() {
    conformance::main(vec![Arc::new(memory::Memory::default())])
}
