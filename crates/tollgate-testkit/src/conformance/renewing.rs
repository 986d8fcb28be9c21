//! A held lock is renewed, and says how long it has left.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(a_held_lock_outlives_its_ttl),
    case!(a_healthy_guard_is_never_in_jeopardy),
    case!(a_renewal_can_replace_the_details),
    case!(ensure_renews_when_too_little_is_left if expires),
    case!(ensure_refuses_what_can_never_be_left if expires),
    case!(a_lock_that_never_expires_says_so if |c| !expires(c)),
];

async fn a_held_lock_outlives_its_ttl(world: World) {
    let name = world.name("renewed");
    let (mine, theirs) = (world.locks().await, world.locks().await);
    let guard = mine.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let until = Instant::now() + world.ttl() * 3;
    while Instant::now() < until {
        assert_ne!(guard.state(), GuardState::Lost { cause: LossCause::Expired });
        guard.check().expect("a renewed lock is held");
        assert!(
            theirs.lock(&name).try_acquire().await.unwrap().is_none(),
            "a held lock was granted to another client"
        );
        tokio::time::sleep(world.ttl() / 10).await;
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

async fn a_healthy_guard_is_never_in_jeopardy(world: World) {
    // Long enough that a renewal is not late because of a disk that others use.
    let ttl = world.ttl() * 2;
    let guard = world.locks().await.lock(world.name("healthy")).ttl(ttl).acquire().await.unwrap();
    let until = Instant::now() + ttl * 3;
    while Instant::now() < until {
        assert_eq!(guard.state(), GuardState::Held, "with {:?} left", guard.remaining());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    guard.release().await.unwrap();
}

async fn a_renewal_can_replace_the_details(world: World) {
    let name = world.name("details");
    let backend = world.backend().await;
    let claim = world.claim(&name, Mode::Exclusive);
    let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
        panic!("a free lock was busy")
    };
    let mut details = claim.details.clone();
    details.meta.insert("step".into(), "2 of 3".into());
    let extended = backend.extend(&grant, claim.ttl, Some(&details)).await.unwrap();
    assert!(matches!(extended, Extension::Extended { .. }));
    assert_eq!(world.look(&name).await.expect("the lock is held").holders[0].details, details);
    assert!(matches!(backend.extend(&grant, claim.ttl, None).await.unwrap(), Extension::Extended { .. }));
    assert_eq!(
        world.look(&name).await.expect("the lock is held").holders[0].details,
        details,
        "they were forgotten"
    );
    backend.release(&grant).await.unwrap();
}

async fn ensure_renews_when_too_little_is_left(world: World) {
    let name = world.name("ensured");
    let guard = world.locks().await.lock(&name).ttl(world.ttl()).no_renew().acquire().await.unwrap();
    let wanted = world.ttl() / 2;
    eventually("less than half is left", || async { (guard.remaining()? < wanted).then_some(()) }).await;
    guard.ensure(wanted).await.expect("a live lock can be renewed");
    assert!(guard.remaining().expect("a lease has an end") >= wanted);
    guard.release().await.unwrap();
}

async fn ensure_refuses_what_can_never_be_left(world: World) {
    let guard = world.locks().await.lock(world.name("ensured")).ttl(world.ttl()).acquire().await.unwrap();
    expect_kind(guard.ensure(world.ttl() * 2).await, ErrorKind::InvalidArgument);
    guard.release().await.unwrap();
}

async fn a_lock_that_never_expires_says_so(world: World) {
    let guard = world.locks().await.lock(world.name("lasting")).ttl(world.ttl()).acquire().await.unwrap();
    assert_eq!(guard.remaining(), None);
    guard.ensure(Duration::from_secs(3600)).await.expect("nothing ends it");
    guard.release().await.unwrap();
}
