//! What is lost is given back late enough, and never where a lock-delay is to keep the name closed.

use std::sync::Mutex;

use crate::support::*;

const TTL: Duration = ms(600);
const DELAY: Duration = Duration::from_secs(60);

/// Fails if anybody gets in although the last holder, who asked for a lock-delay, was lost.
async fn stays_closed(backend: &Arc<dyn Backend>) {
    until_idle(&**backend, "delayed").await;
    let next = locks(backend).lock("delayed").try_acquire().await.unwrap();
    assert!(next.is_none(), "the name is open though its holder was lost");
}

#[tokio::test]
async fn a_lost_guard_that_is_dropped_leaves_the_lock_delay_alone() {
    let backend = memory();
    let request = locks(&backend).lock("delayed").ttl(TTL).no_renew().lock_delay(DELAY);
    let guard = request.acquire().await.unwrap();
    soon("the loss is signalled", guard.lost()).await;
    drop(guard);
    stays_closed(&backend).await;
}

#[tokio::test]
async fn a_lost_guard_that_is_released_leaves_the_lock_delay_alone() {
    let backend = memory();
    let request = locks(&backend).lock("delayed").ttl(TTL).no_renew().lock_delay(DELAY);
    let guard = request.acquire().await.unwrap();
    soon("the loss is signalled", guard.lost()).await;
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    stays_closed(&backend).await;
}

#[tokio::test]
async fn a_run_that_is_cut_short_leaves_the_lock_delay_alone() {
    let backend = memory();
    let request = locks(&backend).lock("delayed").ttl(TTL).max_hold(TTL / 3).lock_delay(DELAY);
    expect_kind(request.run(async |_| std::future::pending::<()>().await).await, ErrorKind::Lost);
    stays_closed(&backend).await;
}

#[tokio::test]
async fn an_adopted_guard_that_is_lost_leaves_the_lock_delay_alone() {
    let backend = memory();
    let (theirs, faulty) = troubled(&backend);
    let guard = locks(&backend).lock("delayed").ttl(TTL).lock_delay(DELAY).acquire().await.unwrap();
    let adopted = theirs.adopt(guard.into_grant().unwrap()).await.unwrap();
    faulty.always(Operation::Extend, Trouble::Refused);
    soon("the loss is signalled", adopted.lost()).await;
    drop(adopted);
    stays_closed(&backend).await;
}

#[tokio::test]
async fn a_lock_delay_is_nothing_to_one_that_is_released_in_time() {
    let backend = memory();
    let guard = locks(&backend).lock("delayed").ttl(TTL).lock_delay(DELAY).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = locks(&backend).lock("delayed").try_acquire().await.unwrap();
    next.expect("it was released").release().await.unwrap();
}

#[tokio::test]
async fn a_lost_guard_says_so_when_it_is_released() {
    let backend = memory();
    let guard = locks(&backend).lock("held").ttl(DELAY).max_hold(ms(100)).acquire().await.unwrap();
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::MaxHold);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    until_idle(&*backend, "held").await;
}

/// Those who look at the clock just before the deadline need a moment to stop.
#[tokio::test]
async fn what_is_given_up_is_given_back_a_margin_after_its_deadline() {
    let ttl = Duration::from_secs(20);
    for stalls in [false, true] {
        let backend = memory();
        let request = locks(&backend).lock("held").ttl(ttl);
        let request = if stalls { request.stall_after(ms(200)) } else { request.max_hold(ms(200)) };
        let guard = request.acquire().await.unwrap();
        let deadline = guard.deadline().unwrap();
        let next = soon("the next is in", locks(&backend).lock("held").acquire()).await.unwrap();
        let late = clock().now().since(deadline);
        assert!(late >= Deadline::margin(ttl), "the next was in {late:?} after the deadline");
        assert!(late < ttl / 2, "it was not given back, only the ttl ended it");
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_is_in_only_after_the_work_was_cancelled() {
    /// Notes when the work ended.
    struct Out(Arc<Mutex<Option<Instant>>>);
    impl Drop for Out {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Instant::now());
        }
    }
    for _ in 0..5 {
        let locks = locks(&memory());
        let left = Arc::new(Mutex::new(None));
        let (request, out) = (locks.lock("work").ttl(Duration::from_secs(20)), Out(left.clone()));
        let work = tokio::spawn(request.max_hold(ms(150)).run(async move |_| {
            let _out = out;
            loop {
                tokio::time::sleep(ms(1)).await;
                std::thread::sleep(ms(20));
            }
        }));
        tokio::time::sleep(ms(50)).await;
        let next = soon("the next is in", locks.lock("work").acquire()).await.unwrap();
        let entered = Instant::now();
        let worked: Result<()> = soon("the work ends", work).await.unwrap();
        expect_kind(worked, ErrorKind::Lost);
        let left = left.lock().unwrap().expect("the work was dropped");
        assert!(left <= entered, "they were in together for {:?}", left - entered);
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn run_gives_its_value_though_the_release_is_never_answered() {
    let (locks, faulty) = troubled(&memory());
    faulty.always(Operation::Release, Trouble::SilenceAfter);
    let run = locks.lock("run").ttl(TTL).run(async |_| 7);
    assert_eq!(within(ms(5000), "run returns", run).await.unwrap(), 7);
}

/// The error of the work is told even if the lock was lost meanwhile; a lost lock is told if the work itself went well.
#[tokio::test]
async fn try_run_tells_one_error_and_releases() {
    #[derive(Debug)]
    enum Failure {
        OfWork,
        OfLock(ErrorKind),
    }
    impl From<tollgate_core::Error> for Failure {
        fn from(error: tollgate_core::Error) -> Self {
            Self::OfLock(error.kind())
        }
    }
    let backend = memory();
    let locks = locks(&backend);
    let done: Result<u8, Failure> = locks.lock("run").ttl(TTL).try_run(async |_| Ok(7)).await;
    assert!(matches!(done, Ok(7)));
    let failed: Result<(), Failure> =
        locks.lock("run").ttl(TTL).try_run(async |_| Err(Failure::OfWork)).await;
    assert!(matches!(failed, Err(Failure::OfWork)));
    until_idle(&*backend, "run").await;
    let endless = locks.lock("run").ttl(TTL).max_hold(TTL / 3);
    let lost: Result<(), Failure> = endless.try_run(async |_| std::future::pending().await).await;
    assert!(matches!(lost, Err(Failure::OfLock(ErrorKind::Lost))), "{lost:?}");
}
