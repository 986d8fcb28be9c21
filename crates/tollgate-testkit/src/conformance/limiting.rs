//! Locks that are given up on purpose: `max_hold` and `stall_after`.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(a_lock_is_given_up_after_max_hold),
    case!(a_lock_is_given_up_when_the_work_stalls),
    case!(progress_keeps_the_lock),
    case!(a_limit_of_zero_is_refused),
];

async fn a_lock_is_given_up_after_max_hold(world: World) {
    let name = world.name("max-hold");
    let (most, ttl) = (Duration::from_millis(400), world.ttl() * 20);
    let started = Instant::now();
    let guard = world.locks().await.lock(&name).ttl(ttl).max_hold(most).acquire().await.unwrap();
    assert!(guard.remaining().expect("max_hold is an end") <= most);
    let cause = soon("the loss is signalled", guard.lost()).await;
    assert_eq!(cause, LossCause::MaxHold);
    expect_kind(guard.fence(), ErrorKind::Lost);
    let next = soon("the next claim is granted", world.locks().await.lock(&name).acquire()).await.unwrap();
    assert!(started.elapsed() < ttl / 2, "the lock was not given up, only its ttl ended it");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    next.release().await.unwrap();
}

async fn a_lock_is_given_up_when_the_work_stalls(world: World) {
    let name = world.name("stalled");
    let (silence, ttl) = (Duration::from_millis(400), world.ttl() * 20);
    let started = Instant::now();
    let guard = world.locks().await.lock(&name).ttl(ttl).stall_after(silence).acquire().await.unwrap();
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::Stalled);
    guard.progress();
    expect_kind(guard.check(), ErrorKind::Lost);
    let next = soon("the next claim is granted", world.locks().await.lock(&name).acquire()).await.unwrap();
    assert!(started.elapsed() < ttl / 2, "the lock was not given up, only its ttl ended it");
    next.release().await.unwrap();
}

async fn progress_keeps_the_lock(world: World) {
    let name = world.name("progress");
    let silence = Duration::from_millis(900);
    let guard =
        world.locks().await.lock(&name).ttl(world.ttl()).stall_after(silence).acquire().await.unwrap();
    let until = Instant::now() + silence * 2 + world.ttl();
    while Instant::now() < until {
        guard.progress();
        tokio::time::sleep(silence / 10).await;
        guard.check().expect("work that goes on keeps its lock");
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

async fn a_limit_of_zero_is_refused(world: World) {
    let locks = world.locks().await;
    let request = locks.lock(world.name("zero"));
    expect_kind(request.clone().max_hold(Duration::ZERO).try_acquire().await, ErrorKind::InvalidArgument);
    expect_kind(request.stall_after(Duration::ZERO).try_acquire().await, ErrorKind::InvalidArgument);
}
