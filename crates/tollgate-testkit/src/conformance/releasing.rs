//! A release is mine only, and happens however the guard ends.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(only_the_owner_can_release_or_extend),
    case!(a_second_release_says_already_lost),
    case!(a_dropped_guard_is_released_in_the_background),
    case!(a_guard_can_be_dropped_where_there_is_no_runtime),
    case!(a_view_that_outlives_its_guard_is_not_held),
    case!(close_waits_for_what_is_under_way),
    case!(run_releases_when_the_work_is_done),
];

async fn only_the_owner_can_release_or_extend(world: World) {
    let name = world.name("mine");
    let (mine, theirs) = (world.backend().await, world.backend().await);
    let claim = world.claim(&name, Mode::Exclusive);
    let Attempt::Granted(grant) = mine.try_acquire(&claim).await.unwrap() else {
        panic!("a free lock was busy")
    };
    // Everything but the owner id is right.
    let forged = tollgate_core::Grant { owner: OwnerId::random(), ..grant.clone() };
    for backend in [&mine, &theirs] {
        assert_eq!(backend.release(&forged).await.unwrap(), Release::AlreadyLost);
        let extended = backend.extend(&forged, world.ttl(), None).await.unwrap();
        assert!(
            matches!(extended, Extension::Lost { .. }),
            "a client that does not hold the lock could extend it: {extended:?}"
        );
        let stranger = tollgate_core::Claim { owner: OwnerId::random(), ..claim.clone() };
        backend.withdraw(&stranger).await.expect("withdrawing a claim that does not exist succeeds");
    }
    assert!(
        world.locks().await.lock(&name).try_acquire().await.unwrap().is_none(),
        "a client that does not hold the lock released it"
    );
    assert!(matches!(mine.extend(&grant, world.ttl(), None).await.unwrap(), Extension::Extended { .. }));
    assert_eq!(mine.release(&grant).await.unwrap(), Release::Released);
}

async fn a_second_release_says_already_lost(world: World) {
    let name = world.name("twice");
    let backend = world.backend().await;
    let claim = world.claim(&name, Mode::Exclusive);
    let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
        panic!("a free lock was busy")
    };
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    let next = world.locks().await.lock(&name).acquire().await.unwrap();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::AlreadyLost);
    assert!(matches!(backend.extend(&grant, world.ttl(), None).await.unwrap(), Extension::Lost { .. }));
    next.check().unwrap();
    assert!(
        world.locks().await.lock(&name).try_acquire().await.unwrap().is_none(),
        "the successor's lock was released"
    );
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

async fn a_dropped_guard_is_released_in_the_background(world: World) {
    let name = world.name("dropped");
    let locks = world.locks().await;
    drop(locks.lock(&name).ttl(Duration::from_secs(60)).acquire().await.unwrap());
    world.until_idle(&name).await;
}

async fn a_guard_can_be_dropped_where_there_is_no_runtime(world: World) {
    let name = world.name("dropped");
    let guard = world.locks().await.lock(&name).ttl(Duration::from_secs(60)).acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().expect("dropping a guard needs no runtime");
    world.until_idle(&name).await;
}

async fn a_view_that_outlives_its_guard_is_not_held(world: World) {
    let guard = world.locks().await.lock(world.name("view")).acquire().await.unwrap();
    let view = guard.lease();
    let lost = view.lost();
    assert_eq!(view.state(), GuardState::Held);
    guard.release().await.unwrap();
    assert_eq!(view.state(), GuardState::Lost { cause: LossCause::Released });
    expect_kind(view.fence(), ErrorKind::Lost);
    assert_eq!(soon("the view reports it", lost).await, LossCause::Released);
}

async fn close_waits_for_what_is_under_way(world: World) {
    let name = world.name("closed");
    let locks = world.locks().await;
    for _ in 0..5 {
        drop(locks.lock(&name).ttl(Duration::from_secs(60)).acquire().await.unwrap());
    }
    soon("close returns", locks.close()).await;
    assert!(world.look(&name).await.is_none(), "close did not wait for the release of a dropped guard");
    expect_kind(locks.lock(&name).try_acquire().await, ErrorKind::InvalidArgument);
}

async fn run_releases_when_the_work_is_done(world: World) {
    let name = world.name("run");
    let locks = world.locks().await;
    let token = locks.lock(&name).run(async |lease| lease.fence().unwrap().token()).await.unwrap();
    world.until_idle(&name).await;
    let next = locks.lock(&name).run(async |lease| lease.token()).await.unwrap();
    assert!(next > token);
}
