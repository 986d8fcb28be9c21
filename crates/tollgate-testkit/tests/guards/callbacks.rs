//! `on_lost` tells of losses, and whatever a callback does harms no other lock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::support::*;

const TTL: Duration = ms(500);

#[tokio::test]
async fn on_lost_is_silent_after_a_release() {
    let guard = locks(&memory()).lock("released").ttl(TTL).acquire().await.unwrap();
    let (called, calls) = oneshot::channel();
    guard.on_lost(move |cause| called.send(cause).unwrap());
    guard.release().await.unwrap();
    assert!(soon("the callback is dropped", calls).await.is_err(), "a release is no loss");
}

#[tokio::test]
async fn on_lost_tells_the_cause() {
    let guard = locks(&memory()).lock("lost").ttl(TTL).no_renew().acquire().await.unwrap();
    let (called, calls) = oneshot::channel();
    guard.on_lost(move |cause| called.send(cause).unwrap());
    assert_eq!(soon("the callback is called", calls).await, Ok(LossCause::Expired));
}

#[tokio::test]
async fn a_callback_that_blocks_costs_no_other_guard_its_renewal() {
    let locks = locks(&memory());
    let lost = locks.lock("lost").ttl(TTL).max_hold(ms(50)).acquire().await.unwrap();
    let kept = locks.lock("kept").ttl(TTL).acquire().await.unwrap();
    let (called, calls) = oneshot::channel();
    lost.on_lost(move |_| {
        std::thread::sleep(TTL * 3);
        called.send(()).unwrap();
    });
    soon("the callback is done", calls).await.unwrap();
    kept.check().expect("somebody else's callback is no reason to lose a lock");
}

/// More than the threads that a tokio runtime has for work that blocks.
#[tokio::test]
async fn callbacks_that_block_do_not_hold_up_others() {
    const MANY: usize = 520;
    let locks = locks(&memory());
    let called = Arc::new(AtomicUsize::new(0));
    let (done, end) = mpsc::channel::<()>();
    let end = Arc::new(Mutex::new(end));
    let mut guards = Vec::new();
    for number in 0..MANY {
        let guard = locks.lock(format!("lost/{number}")).max_hold(ms(300)).acquire().await.unwrap();
        let (called, end) = (called.clone(), end.clone());
        guard.on_lost(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            // Until the test is over: then the sender is gone.
            let _ = end.lock().unwrap().recv();
        });
        guards.push(guard);
    }
    let all = || async { (called.load(Ordering::SeqCst) == MANY).then_some(()) };
    let outcome = tokio::time::timeout(ms(5000), eventually("all are called", all)).await;
    drop(done);
    assert!(outcome.is_ok(), "{} of {MANY} were called", called.load(Ordering::SeqCst));
}

/// What a callback holds may do anything when it is dropped, and block for as long as it likes.
#[tokio::test]
async fn what_a_callback_holds_is_never_dropped_on_the_keeper() {
    struct Tells(mpsc::Sender<Option<String>>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(std::thread::current().name().map(str::to_owned)).unwrap();
        }
    }
    let locks = locks(&memory());
    for is_released in [true, false] {
        let guard = locks.lock("lock").ttl(TTL).no_renew().acquire().await.unwrap();
        let (dropped, drops) = mpsc::channel();
        let tells = Tells(dropped);
        guard.on_lost(move |_| drop(tells));
        if is_released {
            guard.release().await.unwrap();
        } else {
            soon("the loss is signalled", guard.lost()).await;
        }
        let thread = tokio::task::spawn_blocking(move || drops.recv_timeout(PATIENCE)).await.unwrap();
        assert_ne!(thread.unwrap().as_deref(), Some("tollgate-keeper"), "released: {is_released}");
    }
}
