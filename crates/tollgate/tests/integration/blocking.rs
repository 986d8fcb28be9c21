//! The blocking side, on every kind of thread it may be called from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tollgate::blocking::{self, Locks};
use tollgate::{ErrorKind, GuardState, LossCause, Mode, PartyHandle, Release, Revocation};

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

/// As many as a task may do before it has to let others go on, and more.
const MANY: usize = 500;

#[tokio::test(flavor = "current_thread")]
async fn a_task_may_make_any_number_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:blocking-many".to_owned(), format!("file:{}", folder.path().display())] {
        let task = tokio::spawn(async move {
            let locks = blocking::connect(&url).unwrap();
            for number in 0..MANY {
                locks.lock(format!("a/{}", number % 3)).acquire().unwrap().release().unwrap();
            }
            locks.close();
        });
        tokio::time::timeout(Duration::from_secs(60), task).await.expect("it does not hang").unwrap();
    }
}

#[test]
fn work_runs_where_its_caller_is() {
    let locks = memory("where");
    let inside = locks.lock("a").run(|_| tokio::runtime::Handle::try_current().is_ok()).unwrap();
    assert!(!inside, "what the work starts would be started on the keeper's thread");
}

#[test]
fn every_setting_reaches_the_engine() {
    let locks = memory("settings");
    let held = |name: &str| locks.inspect(name).unwrap().unwrap().holders.pop().unwrap();
    let short = Duration::from_millis(40);

    let shared = locks.lock("shared").shared().acquire().unwrap();
    assert_eq!((shared.mode(), held("shared").mode), (Mode::Shared, Mode::Shared));
    let permit = locks.lock("permit").permit(2).acquire().unwrap();
    assert_eq!((permit.mode(), held("permit").mode), (Mode::permit(2).unwrap(), Mode::permit(2).unwrap()));
    let minute = locks.lock("ttl").ttl(Duration::from_secs(60)).acquire().unwrap();
    assert!(minute.remaining().unwrap() > Duration::from_secs(45));
    let meta = locks.lock("meta").meta("job", "nightly").acquire().unwrap();
    assert_eq!(held("meta").details.meta["job"], "nightly");
    assert_eq!(locks.lock("hold").max_hold(short).acquire().unwrap().lost(), LossCause::MaxHold);
    assert_eq!(locks.lock("stall").stall_after(short).acquire().unwrap().lost(), LossCause::Stalled);
    assert_eq!(locks.lock("once").ttl(SHORT).no_renew().acquire().unwrap().lost(), LossCause::Expired);
    let party = PartyHandle::new();
    let one = locks.lock("party").party(&party).acquire().unwrap();
    assert!(party.stamp().age.is_some(), "the engine gave it an age");
    let delay = Duration::from_secs(60);
    let delayed = locks.lock("delay").ttl(SHORT).no_renew().lock_delay(delay).acquire().unwrap();
    assert_eq!(delayed.grant().lock_delay, delay);
    delayed.lost();
    assert!(locks.lock("delay").wait(SHORT).try_acquire().unwrap().is_none(), "the name stays closed");
    drop((shared, permit, minute, meta, one));
}

#[test]
fn every_setting_of_a_set_reaches_the_engine() {
    let locks = memory("set-settings");
    let held = |name: &str| locks.inspect(name).unwrap().unwrap().holders.pop().unwrap();
    let short = Duration::from_millis(40);

    let shared = locks.lock_all(["shared"]).shared().acquire().unwrap();
    assert_eq!(held("shared").mode, Mode::Shared);
    let permit = locks.lock_all(["permit"]).permit(3).acquire().unwrap();
    assert_eq!(held("permit").mode, Mode::permit(3).unwrap());
    let minute = locks.lock_all(["ttl"]).ttl(Duration::from_secs(60)).meta("job", "x").acquire().unwrap();
    assert!(held("ttl").expires_in.unwrap() > Duration::from_secs(45));
    assert_eq!(held("ttl").details.meta["job"], "x");
    assert_eq!(locks.lock_all(["hold"]).max_hold(short).acquire().unwrap().lost().1, LossCause::MaxHold);
    assert_eq!(locks.lock_all(["stall"]).stall_after(short).acquire().unwrap().lost().1, LossCause::Stalled);
    let once = locks.lock_all(["once"]).ttl(SHORT).no_renew().acquire().unwrap();
    assert_eq!(once.lost().1, LossCause::Expired);
    let party = PartyHandle::new();
    let one = locks.lock_all(["party"]).party(&party).acquire().unwrap();
    assert!(party.stamp().age.is_some(), "the engine gave it an age");
    let delay = Duration::from_secs(60);
    let delayed = locks.lock_all(["delay"]).lock_delay(delay).acquire().unwrap();
    assert_eq!(delayed.get("delay").unwrap().grant().lock_delay, delay);
    drop((shared, permit, minute, one, delayed));
}

#[test]
fn an_iterator_may_be_asked_again_after_its_end() {
    let locks = blocking::connect("memory:blocking-again?timeout=5s").unwrap();
    let mut none = locks.list("");
    assert!(none.next().is_none());
    assert!(none.next().is_none());
}

#[test]
fn a_wait_that_is_too_short_says_so() {
    let locks = memory("wait");
    let held = locks.lock("a").acquire().unwrap();
    let error = locks.lock("a").wait(Duration::from_millis(20)).acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
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
    assert_eq!(locks.revoke_by_force("a", guard.token()).unwrap(), Revocation::Revoked);
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

#[test]
fn work_that_fails_gives_one_error_and_releases() {
    let locks = memory("blocking-try-run");
    let failed: Result<(), Box<dyn std::error::Error>> =
        locks.lock("a").try_run(|_| Err("the work failed".into()));
    assert_eq!(failed.unwrap_err().to_string(), "the work failed");
    let done: tollgate::Result<u8> = locks.lock("a").wait(Duration::from_secs(5)).try_run(|_| Ok(17));
    assert_eq!(done.unwrap(), 17);
}
