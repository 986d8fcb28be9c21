//! Several locks: all or nothing, in time, whatever happens on the way.

use crate::support::*;

#[tokio::test]
async fn an_error_in_the_middle_releases_what_was_taken_before() {
    /// Refuses one name.
    struct Refuses(Arc<dyn Backend>);
    impl Layer for Refuses {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
            if claim.name.as_str() == "b" {
                return Box::pin(std::future::ready(Err(Error::new(ErrorKind::Denied, "not for you"))));
            }
            self.0.acquire(claim)
        }
    }
    let backend = memory();
    let locks = locks(&altered(Refuses(backend.clone())));
    let error = expect_kind(locks.lock_all(["c", "b", "a"]).acquire().await, ErrorKind::Denied);
    assert_eq!(error.lock(), Some(&name("b")));
    for free in ["a", "b", "c"] {
        assert_eq!(backend.inspect(&name(free)).await.unwrap(), None, "{free} is still held");
    }
}

#[tokio::test]
async fn one_lost_while_waiting_for_the_next_is_an_error() {
    let backend = memory();
    let (locks, other) = (locks(&backend), locks(&backend));
    let held = other.lock("b").acquire().await.unwrap();
    let set = tokio::spawn(locks.lock_all(["a", "b"]).ttl(ms(600)).acquire());
    until(&*backend, "b", 1, 1).await;
    let first = backend.inspect(&name("a")).await.unwrap().unwrap().holders[0].token.unwrap();
    other.revoke_by_force("a", first).await.unwrap();
    let error = expect_kind(soon("the set gives up", set).await.unwrap(), ErrorKind::Lost);
    assert_eq!(error.lock(), Some(&name("a")));
    until(&*backend, "b", 1, 0).await;
    until_idle(&*backend, "a").await;
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_set_waits_for_all_of_them_together() {
    let (most, first_comes_free) = (ms(1500), ms(1000));
    let backend = memory();
    let (locks, other) = (locks(&backend), locks(&backend));
    let first = other.lock("a").acquire().await.unwrap();
    let _second = other.lock("b").acquire().await.unwrap();
    let started = Instant::now();
    let set = tokio::spawn(locks.lock_all(["a", "b"]).wait(most).try_acquire());
    tokio::time::sleep(first_comes_free).await;
    first.release().await.unwrap();
    assert!(soon("the set gives up", set).await.unwrap().unwrap().is_none());
    let waited = started.elapsed();
    assert!(waited >= most && waited < most + first_comes_free, "it waited for {waited:?}");
    assert_eq!(backend.inspect(&name("a")).await.unwrap(), None, "none of the set is held");
}

#[tokio::test]
async fn a_set_of_which_one_was_lost_says_so_when_released() {
    let backend = memory();
    let locks = locks(&backend);
    for lost in ["a", "b"] {
        let set = locks.lock_all(["a", "b"]).acquire().await.unwrap();
        locks.revoke_by_force(lost, set.get(lost).unwrap().token()).await.unwrap();
        assert_eq!(set.release().await.unwrap(), Release::AlreadyLost, "{lost} was lost");
        for free in ["a", "b"] {
            assert_eq!(backend.inspect(&name(free)).await.unwrap(), None, "{free} is still held");
        }
    }
    let set = locks.lock_all(["a", "b"]).acquire().await.unwrap();
    assert_eq!(set.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_busy_set_is_busy_though_a_release_in_it_is_not_answered() {
    let backend = memory();
    let _held = locks(&backend).lock("b").acquire().await.unwrap();
    let (locks, faulty) = troubled(&backend);
    faulty.next(Operation::Release, Trouble::ReplyLost);
    let busy = locks.lock_all(["a", "b"]).try_acquire().await;
    assert!(matches!(busy, Ok(None)), "{busy:?}");
}

#[tokio::test]
async fn a_set_gives_up_though_a_release_in_it_is_never_answered() {
    let backend = memory();
    let _held = locks(&backend).lock("b").acquire().await.unwrap();
    let (locks, faulty) = troubled(&backend);
    faulty.always(Operation::Release, Trouble::Silence);
    let set = locks.lock_all(["a", "b"]).ttl(ms(600)).wait(ms(100)).try_acquire();
    let busy = within(ms(5000), "the set gives up", set).await;
    assert!(matches!(busy, Ok(None)), "{busy:?}");
}
