//! Futures dropped at every await leave nothing held, nothing queued and no thread.
//!
//! A program of its own: it counts the threads of its process.

#![allow(clippy::unwrap_used)]

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use support::*;
use tollgate_core::{Attempt, Backend, Claim, Extension, Mode, Release};
use tollgate_local::FileBackend;

/// Threads are counted over the whole process, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts on being woken by unparking the thread that polls.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls at most `times`, waiting for a wake-up in between, and then drops; says whether it completed.
fn poll_times<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    for time in 0..times {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        if time + 1 < times {
            std::thread::park_timeout(Duration::from_secs(1));
        }
    }
    None
}

fn nothing_left(backend: &FileBackend, name: &str, claim: &Claim) {
    run(async {
        backend.withdraw(claim).await.unwrap();
        backend.withdraw(claim).await.unwrap();
        assert_eq!(look(backend, name).await, None);
        assert!(is_free(backend, name, Mode::Exclusive).await);
    });
}

#[test]
fn an_acquire_dropped_after_any_poll_leaves_nothing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    for times in 0..20 {
        for pause in [Duration::ZERO, Duration::from_micros(100), Duration::from_millis(3)] {
            let claim = claim("a", Mode::Exclusive);
            let done = poll_times(backend.acquire(&claim), times);
            std::thread::sleep(pause);
            nothing_left(&backend, "a", &claim);
            let tried = poll_times(backend.try_acquire(&claim), times);
            std::thread::sleep(pause);
            nothing_left(&backend, "a", &claim);
            if times > 5 {
                assert!(matches!(done, Some(Ok(_))) && matches!(tried, Some(Ok(Attempt::Granted(_)))));
            }
        }
    }
}

#[test]
fn a_waiter_dropped_after_any_poll_leaves_nothing_and_no_thread() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(1).unwrap(), Mode::permit(2).unwrap()] {
        let held = run(take(&backend, "a", Mode::permit(1).unwrap()));
        for pause in (0..10).map(|step| Duration::from_micros(40 * step * step)) {
            let claim = claim("a", mode);
            assert!(poll_times(backend.acquire(&claim), 1).is_none());
            std::thread::sleep(pause);
            run(async {
                backend.withdraw(&claim).await.unwrap();
                assert_eq!(counts(&backend, "a").await, (1, 0));
            });
        }
        assert_eq!(run(backend.release(&held)).unwrap(), Release::Released);
        run(until("the threads are gone", async || waiting_threads() == 0));
        assert_eq!(run(look(&backend, "a")), None);
    }
}

/// The hand-over and the withdrawal meet at every point of each other.
#[test]
fn a_withdrawal_that_meets_its_grant_leaves_nothing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    for step in 0..60 {
        let held = run(take(&backend, "a", Mode::Exclusive));
        let claim = claim("a", Mode::Exclusive);
        assert!(poll_times(backend.acquire(&claim), 1).is_none());
        run(until("it waits", async || counts(&backend, "a").await == (1, 1)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(run(backend.release(&held)).unwrap(), Release::Released);
            });
            std::thread::sleep(Duration::from_micros(step * 10));
            run(backend.withdraw(&claim)).unwrap();
        });
        nothing_left(&backend, "a", &claim);
    }
    run(until("the threads are gone", async || waiting_threads() == 0));
}

#[test]
fn any_of_many_waiters_can_leave_and_the_others_keep_their_order() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let backend = Arc::new(open(dir.path()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for leaving in 0..6 {
            let held = take(&backend, "a", Mode::Exclusive).await;
            let mut tasks = Vec::new();
            for at in 0..6 {
                let (backend, claim) = (backend.clone(), claim("a", Mode::Exclusive));
                let task = tokio::spawn({
                    let (backend, claim) = (backend.clone(), claim.clone());
                    async move { backend.acquire(&claim).await }
                });
                until("it waits", async || counts(&backend, "a").await == (1, at + 1)).await;
                tasks.push((task, claim));
            }
            assert!(waiting_threads() <= 1, "one thread is enough for all of them");
            let (task, claim) = tasks.remove(leaving);
            task.abort();
            backend.withdraw(&claim).await.unwrap();
            assert_eq!(counts(&backend, "a").await, (1, 5));
            let mut last = held.token;
            backend.release(&held).await.unwrap();
            for (task, _) in tasks {
                let grant = tokio::time::timeout(LONG, task).await.unwrap().unwrap().unwrap();
                assert!(grant.token > last);
                last = grant.token;
                assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            }
        }
        until("the threads are gone", async || waiting_threads() == 0).await;
    });
}

#[test]
fn a_release_dropped_after_any_poll_still_releases() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    for times in 1..5 {
        let held = run(take(&backend, "a", Mode::Shared));
        let other = run(take(&backend, "a", Mode::Shared));
        let _ = poll_times(backend.release(&held), times);
        run(until("it is released", async || counts(&backend, "a").await == (1, 0)));
        assert_eq!(run(backend.release(&held)).unwrap(), Release::AlreadyLost);
        assert!(matches!(run(backend.extend(&held, held.ttl, None)).unwrap(), Extension::Lost { .. }));
        assert_eq!(run(backend.release(&other)).unwrap(), Release::Released);
    }
}

#[test]
fn a_backend_that_goes_takes_its_waiters_along() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    let held = run(take(&backend, "a", Mode::Exclusive));
    let other = open(dir.path());
    assert!(poll_times(other.acquire(&claim("a", Mode::Exclusive)), 1).is_none());
    run(until("it waits", async || counts(&backend, "a").await == (1, 1)));
    drop(other);
    run(until("it is gone", async || counts(&backend, "a").await == (1, 0)));
    run(until("the threads are gone", async || waiting_threads() == 0));
    run(backend.release(&held)).unwrap();
}
