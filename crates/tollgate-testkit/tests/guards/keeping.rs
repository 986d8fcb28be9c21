//! What is held is renewed, and what is lost stays lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;

const TTL: Duration = ms(500);

/// The keeper's agenda was armed for a moment that has passed: it must be armed anew.
#[tokio::test]
async fn a_lock_taken_after_an_idle_time_is_kept() {
    for first_is_held in [true, false] {
        let backend = memory();
        let locks = locks(&backend);
        let first = locks.lock("first").ttl(TTL).acquire().await.unwrap();
        let first = first_is_held.then_some(first);
        tokio::time::sleep(TTL).await;
        let second = locks.lock("second").ttl(TTL).acquire().await.unwrap();
        tokio::time::sleep(TTL * 3).await;
        second.check().expect("the second lock is renewed as well as the first");
        if let Some(first) = first {
            first.check().expect("the first lock is renewed as well as the second");
        }
    }
}

#[tokio::test]
async fn a_grant_that_arrives_late_is_renewed_at_once() {
    /// Its acquire takes most of the ttl.
    struct SlowReply(Arc<dyn Backend>);
    impl Layer for SlowReply {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
            Box::pin(async {
                let grant = self.0.acquire(claim).await;
                tokio::time::sleep(claim.ttl * 4 / 5).await;
                grant
            })
        }
    }
    let locks = locks(&altered(SlowReply(memory())));
    let guard = locks.lock("late").ttl(TTL * 2).acquire().await.unwrap();
    let left = guard.remaining();
    tokio::time::sleep(TTL).await;
    assert!(guard.check().is_ok(), "{left:?} were left, and nobody renewed: {:?}", guard.state());
}

/// Answers every renewal with a deadline that is closer than a ttl, as an engine does whose sessions are proven alive by what was
/// answered a while ago.
struct Close {
    inner: Arc<dyn Backend>,
    /// Until when, at each renewal.
    deadline: Box<dyn Fn(&Grant) -> Deadline + Send + Sync>,
    renewals: AtomicUsize,
}

impl Close {
    fn new(deadline: impl Fn(&Grant) -> Deadline + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { inner: memory(), deadline: Box::new(deadline), renewals: AtomicUsize::new(0) })
    }
}

impl Layer for Close {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(async {
            let grant = self.inner.acquire(claim).await?;
            Ok(Grant { deadline: (self.deadline)(&grant), ..grant })
        })
    }
    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        _: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.inner.extend(grant, ttl, None).await?;
            Ok(Extension::Extended { deadline: (self.deadline)(grant) })
        })
    }
}

#[tokio::test]
async fn a_deadline_that_is_closer_than_a_ttl_is_met() {
    const TTL: Duration = ms(3000);
    let backend = Close::new(|_| Deadline::At(clock().now() + TTL / 4));
    let locks = Locks::new(backend.clone()).unwrap();
    let guard = locks.lock("close").ttl(TTL).acquire().await.unwrap();
    let end = Instant::now() + TTL * 2;
    while Instant::now() < end {
        assert_eq!(guard.state(), GuardState::Held, "it is renewed in time, and nobody need worry");
        tokio::time::sleep(ms(10)).await;
    }
    let renewals = backend.renewals.load(Ordering::SeqCst);
    assert!((16..=44).contains(&renewals), "renewed {renewals} times in two ttls");
}

#[tokio::test]
async fn an_engine_whose_deadlines_do_not_move_is_not_asked_ever_faster() {
    const TTL: Duration = ms(1000);
    let backend = Close::new(|grant| grant.deadline);
    let locks = Locks::new(backend.clone()).unwrap();
    let guard = locks.lock("fixed").ttl(TTL).acquire().await.unwrap();
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::Expired);
    let renewals = backend.renewals.load(Ordering::SeqCst);
    assert!((2..=15).contains(&renewals), "asked {renewals} times");
}

#[tokio::test]
async fn an_older_deadline_that_comes_late_does_not_shorten() {
    /// Every renewal is answered with what an earlier one had reached.
    struct Older(Arc<dyn Backend>);
    impl Layer for Older {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn extend<'a>(
            &'a self,
            grant: &'a Grant,
            _: Duration,
            _: Option<&'a Details>,
        ) -> BoxFuture<'a, Result<Extension>> {
            let Deadline::At(deadline) = grant.deadline else { panic!("a lease has an end") };
            let older = Deadline::At(deadline - ms(1000));
            Box::pin(std::future::ready(Ok(Extension::Extended { deadline: older })))
        }
    }
    let locks = locks(&altered(Older(memory())));
    let guard = locks.lock("kept").ttl(ms(2000)).no_renew().acquire().await.unwrap();
    let before = guard.deadline();
    tokio::time::sleep(ms(100)).await;
    expect_kind(guard.ensure(ms(1900)).await, ErrorKind::Timeout);
    assert_eq!(guard.deadline(), before);
}

#[tokio::test]
async fn a_renewal_that_is_answered_after_the_loss_does_not_revive() {
    /// Renews at once and answers late.
    struct SlowExtend(Arc<dyn Backend>);
    impl Layer for SlowExtend {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn extend<'a>(
            &'a self,
            grant: &'a Grant,
            ttl: Duration,
            _: Option<&'a Details>,
        ) -> BoxFuture<'a, Result<Extension>> {
            Box::pin(async move {
                let extended = self.0.extend(grant, ttl, None).await;
                tokio::time::sleep(TTL).await;
                let deadline = Deadline::counted_from(clock().now(), ttl);
                extended.map(|_| Extension::Extended { deadline })
            })
        }
    }
    let locks = locks(&altered(SlowExtend(memory())));
    let guard = locks.lock("late").ttl(TTL).no_renew().acquire().await.unwrap();
    tokio::time::sleep(TTL / 5).await;
    let lease = guard.lease();
    let ensured = tokio::spawn(async move { lease.ensure(TTL * 9 / 10).await });
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::Expired);
    expect_kind(soon("ensure ends", ensured).await.unwrap(), ErrorKind::Lost);
    tokio::time::sleep(TTL).await;
    assert_eq!(guard.state(), GuardState::Lost { cause: LossCause::Expired });
    expect_kind(guard.fence(), ErrorKind::Lost);
}

#[tokio::test]
async fn progress_after_the_stall_does_not_revive() {
    let clock = tollgate_testkit::clock::JumpingClock::new();
    let backend = MemoryBackend::new(Arc::new(clock.clone()), &Keeper::global().unwrap());
    let locks = Locks::with_clock(Arc::new(backend), Arc::new(clock.clone())).unwrap();
    let request = locks.lock("stalled").ttl(Duration::from_secs(600)).stall_after(Duration::from_secs(5));
    let guard = request.acquire().await.unwrap();
    clock.jump_unnoticed(Duration::from_secs(60));
    guard.progress();
    expect_kind(guard.check(), ErrorKind::Lost);
}

/// As a server that is short of time: it answers over an open connection, only not soon.
#[tokio::test]
async fn a_renewal_that_is_answered_late_but_before_the_deadline_counts() {
    const TTL: Duration = ms(3000);
    struct Slow(Arc<dyn Backend>);
    impl Layer for Slow {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn extend<'a>(
            &'a self,
            grant: &'a Grant,
            ttl: Duration,
            _: Option<&'a Details>,
        ) -> BoxFuture<'a, Result<Extension>> {
            Box::pin(async move {
                let extended = self.0.extend(grant, ttl, None).await;
                // Longer than a renewal may take before the next is sent.
                tokio::time::sleep(ttl / 3).await;
                extended
            })
        }
    }
    let locks = locks(&altered(Slow(memory())));
    let guard = locks.lock("slow").ttl(TTL).acquire().await.unwrap();
    let lost = tokio::time::timeout(TTL * 3, guard.lost()).await;
    assert!(lost.is_err(), "every renewal was answered before the deadline: {lost:?}");
    guard.release().await.unwrap();
}
