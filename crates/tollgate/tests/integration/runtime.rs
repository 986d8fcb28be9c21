//! What needs a Tokio runtime says so where there is none, and panics nowhere.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use tollgate::{Error, ErrorKind};
use tollgate_testkit::engines::{self, Config};

/// What a future comes to that nothing drives.
fn polled_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for something"),
    }
}

fn expect_advice<T>(outcome: Result<T, Error>) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("#[tokio::main]"), "{error}");
}

#[test]
fn connecting_without_a_runtime_is_an_error_and_no_panic() {
    for url in [
        "redis://h/",
        "redlock://a,b,c",
        "etcd://h",
        "zookeeper://h",
        "postgres://u@h/d",
        "mysql://u@h/d?style=session",
    ] {
        expect_advice(polled_once(tollgate::connect(url)));
        expect_advice(polled_once(tollgate::doctor(url)));
    }
    expect_advice(polled_once(tollgate::gate("redis://h/")));
    expect_advice(polled_once(tollgate::redlock_init("redlock://a,b,c")));
}

#[test]
fn locks_that_leave_their_runtime_fail_and_panic_nowhere() {
    let url = format!("redis://{}/?namespace=no-runtime", engines::shared(&Config::redis()).address());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (locks, guard) = runtime.block_on(async {
        let locks = tollgate::connect(&url).await.unwrap();
        let guard = locks.lock("held").acquire().await.unwrap();
        (locks, guard)
    });
    expect_advice(polled_once(locks.lock("a").try_acquire()));
    expect_advice(polled_once(locks.inspect("a")));
    expect_advice(polled_once(locks.list("").next()).unwrap());
    expect_advice(polled_once(locks.events("").next()).unwrap());
    // A guard can be dropped anywhere: the keeper releases it.
    drop(guard);
    runtime.block_on(async {
        let again = locks.lock("held").wait(std::time::Duration::from_secs(10)).acquire().await.unwrap();
        again.release().await.unwrap();
    });
}

#[test]
fn files_and_memory_need_no_runtime() {
    let folder = tempfile::tempdir().unwrap();
    for url in [format!("file:{}", folder.path().display()), "memory:no-runtime".to_owned()] {
        let locks = futures_executor(tollgate::connect(&url)).unwrap();
        let guard = futures_executor(locks.lock("a").acquire()).unwrap();
        futures_executor(guard.release()).unwrap();
        let gate = futures_executor(tollgate::gate(&format!("{url}?timeout=5s"))).unwrap();
        drop(gate);
    }
}

/// Drives a future on this thread, without Tokio.
fn futures_executor<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
