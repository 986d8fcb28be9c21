//! No timer is trusted: a guard reads the clock at every use.

use super::prelude::*;
use crate::clock::JumpingClock;

pub(super) const CASES: &[Case] = &[
    case!(a_guard_never_says_held_past_its_deadline if expires),
    case!(a_suspended_holder_hears_of_its_loss if expires),
    case!(a_suspend_takes_nothing_that_never_expires if |c| !expires(c)),
];

async fn a_guard_never_says_held_past_its_deadline(world: World) {
    let clock = JumpingClock::new();
    let world = world.on(Arc::new(clock.clone())).await;
    let guard = world.locks().await.lock(world.name("jump")).ttl(world.ttl() * 20).acquire().await.unwrap();
    clock.jump_unnoticed(world.ttl() * 20);
    // No timer has fired; only reading the clock can tell.
    assert_eq!(guard.state(), GuardState::Lost { cause: LossCause::Expired });
    expect_kind(guard.fence(), ErrorKind::Lost);
    expect_kind(guard.ensure(Duration::from_millis(1)).await, ErrorKind::Lost);
    expect_kind(guard.into_grant(), ErrorKind::Lost);
}

async fn a_suspended_holder_hears_of_its_loss(world: World) {
    let clock = JumpingClock::new();
    let world = world.on(Arc::new(clock.clone())).await;
    let guard =
        world.locks().await.lock(world.name("suspend")).ttl(world.ttl() * 20).acquire().await.unwrap();
    let (lost, mut watch) = (guard.lost(), guard.watch());
    let (sender, receiver) = tokio::sync::oneshot::channel();
    guard.on_lost(move |cause| sender.send(cause).expect("the case listens"));
    clock.jump(world.ttl() * 20);
    assert_eq!(soon("the future completes", lost).await, LossCause::Expired);
    assert_eq!(soon("the callback is called", receiver).await.unwrap(), LossCause::Expired);
    let told =
        soon("the watch reports the loss", watch.wait_for(|state| matches!(state, GuardState::Lost { .. })))
            .await;
    assert_eq!(told, GuardState::Lost { cause: LossCause::Expired });
}

async fn a_suspend_takes_nothing_that_never_expires(world: World) {
    let clock = JumpingClock::new();
    let world = world.on(Arc::new(clock.clone())).await;
    let guard = world.locks().await.lock(world.name("suspend")).ttl(world.ttl()).acquire().await.unwrap();
    clock.jump(world.ttl() * 20);
    guard.check().expect("nothing expires on this engine");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
