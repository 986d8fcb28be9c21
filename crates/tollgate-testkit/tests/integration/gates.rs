//! The gate in memory, and that its refusals are counted.
use std::sync::Arc;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tollgate_core::{Gate, MemoryGate};
use tollgate_testkit::gates::{gate_cases, shown};

#[tokio::test]
async fn a_gate_in_memory_keeps_the_contract() {
    let gate: Arc<dyn Gate> = Arc::new(MemoryGate::new());
    gate_cases(&gate).await;
}

#[test]
fn one_name_is_one_gate() {
    assert!(Arc::ptr_eq(&MemoryGate::named("a"), &MemoryGate::named("a")));
    assert!(!Arc::ptr_eq(&MemoryGate::named("a"), &MemoryGate::named("b")));
}

#[test]
fn a_refusal_is_counted_once() {
    let recorder = DebuggingRecorder::new();
    let seen = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let gate = MemoryGate::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            gate.admit("counted", shown(9, true)).await.unwrap();
            gate.admit("counted", shown(8, true)).await.unwrap_err();
        });
    });
    let counted = seen.snapshot().into_vec();
    let refused =
        counted.iter().find(|(key, ..)| key.key().name() == "tollgate_fence_rejected_total").unwrap();
    assert_eq!(refused.3, DebugValue::Counter(1));
}
