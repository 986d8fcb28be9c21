//! The blocking side, on every kind of thread it may be called from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tollgate::blocking::{self, Locks};
use tollgate::{ErrorKind, GuardState, LossCause, Release, Revocation};

const SHORT: Duration = Duration::from_millis(300);

/// Locks that no other test sees.
fn memory(name: &str) -> Locks {
    blocking::connect(&format!("memory:blocking-{name}")).expect("memory: can be opened")
}

#[test]
fn threads_exclude_each_other_on_every_engine() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:blocking-threads".to_owned(), format!("file:{}", folder.path().display())] {
        let locks = blocking::connect(&url).unwrap();
        let (inside, total) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let guard = locks.lock("counter").acquire().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two were in on {url}");
                        total.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(guard.release().unwrap(), Release::Released);
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 160);
        locks.close();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn it_is_safe_inside_a_runtime_of_one_thread() {
    let locks = memory("inside");
    let guard = locks.lock("a").ttl(SHORT).acquire().unwrap();
    // The executor is blocked for several ttls, and the lock is kept all the same.
    std::thread::sleep(SHORT * 3);
    assert_eq!(guard.state(), GuardState::Held);
    assert!(locks.lock("a").wait(Duration::from_millis(20)).try_acquire().unwrap().is_none());
    guard.release().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_safe_inside_a_runtime_of_many_threads() {
    let folder = tempfile::tempdir().unwrap();
    let locks = blocking::connect(&format!("file:{}", folder.path().display())).unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.lock("a").acquire().unwrap().release().unwrap() })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Release::Released);
    }
    locks.close();
}

#[test]
fn a_wait_that_is_too_short_says_so() {
    let locks = memory("wait");
    let held = locks.lock("a").acquire().unwrap();
    let error = locks.lock("a").wait(Duration::from_millis(20)).acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(locks.lock("a").try_acquire().unwrap().is_none());
    drop(held);
    assert!(locks.lock("a").wait(Duration::from_secs(20)).try_acquire().unwrap().is_some());
}

#[test]
fn a_loss_is_told_to_whoever_waits_for_it() {
    let locks = memory("loss");
    let guard = locks.lock("a").ttl(SHORT).acquire().unwrap();
    let (told, tell) = std::sync::mpsc::channel();
    guard.on_lost(move |cause| told.send(cause).unwrap());
    assert_eq!(locks.revoke("a", guard.token()).unwrap(), Revocation::Revoked);
    let cause = guard.lost();
    assert_ne!(cause, LossCause::Released);
    assert_eq!(tell.recv_timeout(Duration::from_secs(20)).unwrap(), cause);
    assert_eq!(guard.fence().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().unwrap(), Release::AlreadyLost);
}

#[test]
fn work_that_outlives_its_lock_is_told() {
    let locks = memory("run");
    assert_eq!(locks.lock("a").run(|lease| lease.token().get()).unwrap(), 1);
    let error = locks
        .lock("a")
        .ttl(SHORT)
        .max_hold(Duration::from_millis(20))
        .run(|lease| while lease.check().is_ok() {})
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[test]
fn a_grant_goes_from_hand_to_hand() {
    let locks = memory("adopt");
    let guard = locks.lock("a").no_renew().acquire().unwrap();
    let token = guard.token();
    let json = serde_json::to_string(&guard.into_grant().unwrap()).unwrap();
    let adopted = locks.adopt(serde_json::from_str(&json).unwrap()).unwrap();
    assert_eq!(adopted.token(), token);
    adopted.ensure(Duration::from_secs(20)).unwrap();
    assert_eq!(adopted.release().unwrap(), Release::Released);
}

#[test]
fn a_grant_that_nobody_keeps_can_be_renewed_and_released() {
    let locks = memory("detached");
    let grant = locks.lock("a").no_renew().acquire().unwrap().into_grant().unwrap();
    let longer = locks.extend_grant(&grant, Duration::from_secs(60)).unwrap();
    assert_eq!(longer.ttl, Duration::from_secs(60));
    assert_eq!(locks.release_grant(&longer).unwrap(), Release::Released);
    assert_eq!(locks.release_grant(&longer).unwrap(), Release::AlreadyLost);
}

#[test]
fn a_lock_that_hangs_on_a_file_is_inherited_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().display());
    let (first, second) = (blocking::connect(&url).unwrap(), blocking::connect(&url).unwrap());
    let (grant, lock) = first.lock("a").acquire().unwrap().bequeath().unwrap();
    assert!(first.lock("a").try_acquire().unwrap().is_none());
    let guard = second.inherit(grant.clone(), lock).unwrap();
    assert_eq!(guard.grant().token, grant.token);
    assert_eq!(guard.release().unwrap(), Release::Released);
    assert!(first.lock("a").try_acquire().unwrap().is_some());
    first.close();
    second.close();
}

#[test]
fn a_set_is_all_or_nothing() {
    let locks = memory("set");
    let one = locks.lock("b").acquire().unwrap();
    assert!(locks.lock_all(["a", "b"]).try_acquire().unwrap().is_none());
    assert!(locks.inspect("a").unwrap().is_none());
    drop(one);
    let both = locks.lock_all(["b", "a"]).ttl(SHORT).wait(Duration::from_secs(20)).acquire().unwrap();
    assert_eq!(both.len(), 2);
    both.ensure(Duration::from_millis(100)).unwrap();
    locks.revoke("b", both.get("b").unwrap().token()).unwrap();
    assert_eq!(both.lost().0.as_str(), "b");
    assert_eq!(both.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(both.release().unwrap(), Release::AlreadyLost);
}

#[test]
fn events_come_one_after_the_other() {
    let locks = memory("events");
    let mut events = locks.events("watched/");
    let other = locks.clone();
    let worker = std::thread::spawn(move || {
        let guard = other.lock("watched/a").acquire().unwrap();
        guard.release().unwrap();
    });
    let first = events.next().unwrap().unwrap();
    assert_eq!(first.name.as_str(), "watched/a");
    worker.join().unwrap();
    assert_eq!(locks.list("watched/").count(), 0);
}

#[test]
fn a_dropped_guard_is_released_without_a_runtime() {
    let locks = Arc::new(memory("drop"));
    drop(locks.lock("a").acquire().unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    while locks.inspect("a").unwrap().is_some() {
        assert!(Instant::now() < until, "the lock was never released");
    }
    locks.close();
    assert_eq!(locks.lock("a").acquire().unwrap_err().kind(), ErrorKind::InvalidArgument);
}
