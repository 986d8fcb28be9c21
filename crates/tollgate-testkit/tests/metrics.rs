//! Every metric, read by the recorder of whoever watches.
//!
//! A program of its own: what is counted is counted for the whole process.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tollgate_core::layer::Metrics;
use tollgate_core::{Backend, BootClock, ErrorKind, Keeper, Locks, Mark};
use tollgate_embedded::MemoryBackend;
use tollgate_testkit::fault::{Faulty, Operation, Trouble};
use tollgate_testkit::subject::eventually;

const TTL: Duration = Duration::from_millis(300);
/// How long somebody is kept waiting.
const WHILE: Duration = Duration::from_millis(120);

/// What the recorder knows: `name{label=value,…}` to a number, of a histogram how many values, and in `seconds`
/// their sum.
struct Seen {
    snapshotter: Snapshotter,
    /// A snapshot takes what it shows away from the recorder.
    total: std::cell::RefCell<BTreeMap<String, f64>>,
    seconds: std::cell::RefCell<BTreeMap<String, f64>>,
}

impl Seen {
    fn get(&self, key: &str) -> f64 {
        let mut total = self.total.borrow_mut();
        for (composite, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let (_, key) = composite.into_parts();
            let labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = format!("{}{{{}}}", key.name(), labels.join(","));
            if let DebugValue::Histogram(values) = &value {
                let sum: f64 = values.iter().map(|value| value.into_inner()).sum();
                *self.seconds.borrow_mut().entry(name.clone()).or_default() += sum;
            }
            let entry = total.entry(name).or_default();
            *entry += match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(change) => change.into_inner(),
                DebugValue::Histogram(values) => values.len() as f64,
            };
        }
        total.get(key).copied().unwrap_or(0.0)
    }

    async fn until(&self, key: &str, wanted: f64) {
        eventually(&format!("{key} is {wanted}"), || async { (self.get(key) == wanted).then_some(()) }).await;
    }
}

fn engine() -> (Arc<Faulty>, Locks) {
    let keeper = Keeper::global().expect("a test can start a thread");
    let clock = Arc::new(BootClock::new(keeper.clone()));
    let faulty = Faulty::new(Arc::new(MemoryBackend::new(clock.clone(), &keeper)));
    let inner: Arc<dyn Backend> = faulty.clone();
    (faulty, Locks::new(Arc::new(Metrics::new(inner, clock))).expect("a test can start a thread"))
}

#[tokio::test]
async fn every_metric_tells_what_happened() {
    let recorder = DebuggingRecorder::new();
    let seen =
        Seen { snapshotter: recorder.snapshotter(), total: Default::default(), seconds: Default::default() };
    recorder.install().unwrap();
    let (faulty, locks) = engine();

    // Held, contended, waited for, released.
    let guard = locks.lock("a").ttl(TTL * 100).acquire().await.unwrap();
    seen.until("tollgate_held{backend=memory}", 1.0).await;
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(seen.get("tollgate_contended_total{backend=memory}"), 1.0);
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=busy}"), 1.0);
    let waiting = tokio::spawn(locks.lock("a").acquire());
    seen.until("tollgate_waiters{backend=memory}", 1.0).await;
    tokio::time::sleep(WHILE).await;
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert_eq!(seen.get("tollgate_waiters{backend=memory}"), 0.0);
    assert_eq!(seen.get("tollgate_wait_seconds{backend=memory,outcome=granted}"), 1.0);
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=granted}"), 2.0);
    assert_eq!(seen.get("tollgate_contended_total{backend=memory}"), 2.0);
    assert_eq!(seen.get("tollgate_hold_seconds{backend=memory,outcome=released}"), 1.0);
    next.release().await.unwrap();
    assert_eq!(seen.get("tollgate_held{backend=memory}"), 0.0);
    for key in [
        "tollgate_wait_seconds{backend=memory,outcome=granted}",
        "tollgate_acquire_seconds{backend=memory,outcome=granted}",
        "tollgate_hold_seconds{backend=memory,outcome=released}",
    ] {
        let seconds = seen.seconds.borrow()[key];
        assert!((WHILE.as_secs_f64()..20.0).contains(&seconds), "{key} has {seconds} s in all");
    }
    let busy = seen.seconds.borrow()["tollgate_acquire_seconds{backend=memory,outcome=busy}"];
    assert!(busy < 20.0, "{busy} s to be told that it is busy");

    // Given up, and failed.
    let guard = locks.lock("b").acquire().await.unwrap();
    assert!(locks.lock("b").wait(Duration::from_millis(20)).try_acquire().await.unwrap().is_none());
    assert_eq!(seen.get("tollgate_wait_seconds{backend=memory,outcome=given_up}"), 1.0);
    drop(guard);
    faulty.next(Operation::TryAcquire, Trouble::Refused);
    locks.lock("c").try_acquire().await.unwrap_err();
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=failed}"), 1.0);

    // An engine that does not answer is a failure, and nobody was seen in the way.
    let contended = seen.get("tollgate_contended_total{backend=memory}");
    faulty.next(Operation::Acquire, Trouble::Silence);
    locks.lock("c").wait(Duration::from_millis(20)).try_acquire().await.unwrap_err();
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=failed}"), 2.0);
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=given_up}"), 1.0);
    assert_eq!(seen.get("tollgate_contended_total{backend=memory}"), contended);

    // Nor is an engine that put a claim into the queue and then hangs.
    let holder = locks.lock("queued").ttl(TTL * 100).acquire().await.unwrap();
    // The withdrawal of the claim above may still be under way.
    faulty.always(Operation::Withdraw, Trouble::Silence);
    locks.lock("queued").wait(Duration::from_millis(20)).try_acquire().await.unwrap_err();
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=failed}"), 3.0);
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=given_up}"), 1.0);
    assert_eq!(seen.get("tollgate_contended_total{backend=memory}"), contended);
    faulty.heal();
    drop(holder);
    faulty.next(Operation::TryAcquire, Trouble::Silence);
    let failed = locks.lock("c").try_acquire().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Indeterminate);
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=failed}"), 4.0);
    assert_eq!(seen.get("tollgate_acquire_seconds{backend=memory,outcome=given_up}"), 1.0);

    // Renewals fail, and the lock is lost by it.
    faulty.always(Operation::Extend, Trouble::Refused);
    let guard = locks.lock("d").ttl(TTL).acquire().await.unwrap();
    guard.lost().await;
    // Whoever waits for a loss is told before whoever counts it.
    seen.until("tollgate_lost_total{backend=memory,cause=expired}", 1.0).await;
    seen.until("tollgate_hold_seconds{backend=memory,outcome=lost}", 1.0).await;
    assert!(seen.get("tollgate_renew_failures_total{backend=memory}") >= 1.0);
    drop(guard);
    faulty.heal();

    // Lost by other causes, each under its own name.
    let guard = locks.lock("e").ttl(TTL).max_hold(Duration::from_millis(30)).acquire().await.unwrap();
    guard.lost().await;
    seen.until("tollgate_lost_total{backend=memory,cause=max_hold}", 1.0).await;
    let guard = locks.lock("f").ttl(TTL).acquire().await.unwrap();
    locks.revoke_by_force("f", guard.token()).await.unwrap();
    guard.lost().await;
    let causes =
        ["gone", "revoked"].map(|cause| format!("tollgate_lost_total{{backend=memory,cause={cause}}}"));
    let counted = || async { (causes.iter().map(|key| seen.get(key)).sum::<f64>() == 1.0).then_some(()) };
    eventually("the loss is counted", counted).await;

    // A release that is not answered is stuck until it is.
    faulty.always(Operation::Release, Trouble::Refused);
    drop(locks.lock("g").acquire().await.unwrap());
    seen.until("tollgate_stuck{backend=memory}", 1.0).await;
    faulty.heal();
    seen.until("tollgate_stuck{backend=memory}", 0.0).await;

    // A stale token is refused.
    let (old, mut mark) = (locks.lock("h").acquire().await.unwrap(), Mark::new());
    let stale = old.fence().unwrap();
    old.release().await.unwrap();
    let new = locks.lock("h").acquire().await.unwrap();
    mark.admit(new.fence().unwrap()).unwrap();
    mark.admit(stale).unwrap_err();
    assert_eq!(seen.get("tollgate_fence_rejected_total{}"), 1.0);
    drop(new);

    // Nothing is left, and no lock's name is a label.
    seen.until("tollgate_held{backend=memory}", 0.0).await;
    for key in seen.total.borrow().keys() {
        let names = ["=a,", "=a}", "=b,", "=b}", "=h,", "=h}"];
        assert!(!names.iter().any(|name| key.contains(name)), "{key}");
    }
}
