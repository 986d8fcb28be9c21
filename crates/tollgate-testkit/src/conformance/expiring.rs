//! What ends by itself, and when.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(an_abandoned_grant_ends_with_its_ttl if expires),
    case!(a_session_keeps_its_claims_until_it_is_closed if |c| c.liveness == Liveness::Session),
    case!(a_lock_that_nobody_renews_is_lost_by_its_deadline if expires),
    case!(a_ttl_out_of_range_is_refused_with_the_range),
    case!(a_lost_holders_name_stays_closed_for_its_lock_delay if |c| c.lock_delay && expires(c)),
    case!(a_lock_delay_that_is_not_declared_is_refused if |c| !c.lock_delay),
];

async fn an_abandoned_grant_ends_with_its_ttl(world: World) {
    let name = world.name("abandoned");
    let backend = world.backend().await;
    let claim = tollgate_core::Claim { standalone: true, ..world.claim(&name, Mode::Exclusive) };
    let asked = Instant::now();
    let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
        panic!("a free lock was busy")
    };
    let other = world.locks().await;
    let next = soon("the abandoned lock becomes free", other.lock(&name).acquire()).await.unwrap();
    let took = asked.elapsed();
    let tollgate_core::Deadline::At(deadline) = grant.deadline else { panic!("a lease has a deadline") };
    assert!(world.clock().now() >= deadline, "the lock was granted again before its holder's deadline");
    assert!(
        took < world.ttl() + Duration::from_secs(4),
        "it took {took:?} to end a ttl of {:?}",
        world.ttl()
    );
    assert_eq!(backend.release(&grant).await.unwrap(), Release::AlreadyLost);
    next.release().await.unwrap();
}

async fn a_session_keeps_its_claims_until_it_is_closed(world: World) {
    let name = world.name("session");
    let backend = world.backend().await;
    let claim = world.claim(&name, Mode::Exclusive);
    assert!(matches!(backend.try_acquire(&claim).await.unwrap(), Attempt::Granted(_)));
    // Nobody extends the grant; the session is renewed on its own.
    tokio::time::sleep(world.ttl() * 3).await;
    assert_eq!(world.look(&name).await.expect("the session lives").holders.len(), 1);
    backend.close().await;
    drop(backend);
    world.until_idle(&name).await;
}

async fn a_lock_that_nobody_renews_is_lost_by_its_deadline(world: World) {
    let name = world.name("unrenewed");
    let guard = world.locks().await.lock(&name).ttl(world.ttl()).no_renew().acquire().await.unwrap();
    assert_eq!(guard.state(), GuardState::Held);
    let left = guard.remaining().expect("a lease has an end");
    assert!(left < world.ttl(), "the deadline keeps a margin");
    let cause = soon("the loss is signalled", guard.lost()).await;
    assert_eq!(cause, LossCause::Expired);
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    expect_kind(guard.fence(), ErrorKind::Lost);
    let next = soon("the lock becomes free", world.locks().await.lock(&name).acquire()).await.unwrap();
    next.release().await.unwrap();
}

async fn a_ttl_out_of_range_is_refused_with_the_range(world: World) {
    let locks = world.locks().await;
    let range = world.capabilities().ttl;
    let mut bad = vec![Duration::ZERO, range.min / 2, range.max + range.step + Duration::from_secs(1)];
    if !range.step.is_zero() {
        bad.push(range.min + range.step / 2);
    }
    for ttl in bad {
        let error = expect_kind(
            locks.lock(world.name("ttl")).ttl(ttl).try_acquire().await,
            ErrorKind::InvalidArgument,
        );
        assert!(
            error.to_string().contains(&format!("{:?}", range.max)),
            "the error does not name the range: {error}"
        );
    }
}

async fn a_lost_holders_name_stays_closed_for_its_lock_delay(world: World) {
    let name = world.name("delay");
    let delay = Duration::from_millis(700);
    let locks = world.locks().await;
    let guard = locks.lock(&name).ttl(world.ttl()).no_renew().lock_delay(delay).acquire().await.unwrap();
    let (expired, clock) = (clock_at_expiry(&guard, &world), world.clock());
    let next = soon("the delay ends", world.locks().await.lock(&name).acquire()).await.unwrap();
    assert!(clock.now() >= expired + delay, "the name was open before the lock-delay ended");
    next.release().await.unwrap();
    // A release is no loss: no delay.
    let guard = locks.lock(&name).lock_delay(Duration::from_secs(3600)).acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_some(), "a released name stayed closed");
}

fn clock_at_expiry(guard: &Guard, world: &World) -> tollgate_core::Moment {
    world.clock().now() + guard.remaining().expect("a lease has an end")
}

async fn a_lock_delay_that_is_not_declared_is_refused(world: World) {
    let request = world.locks().await.lock(world.name("delay")).lock_delay(Duration::from_secs(1));
    expect_kind(request.try_acquire().await, ErrorKind::Unsupported);
}
