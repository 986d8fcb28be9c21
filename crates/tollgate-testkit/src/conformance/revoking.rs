//! An operator breaks a lock.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(a_broken_lock_goes_to_the_next if |c| c.revoke == Revoke::Forced),
    case!(a_holder_that_is_asked_to_leave_hears_of_it if |c| c.revoke == Revoke::Cooperative),
    case!(breaking_needs_the_holders_token),
];

async fn a_broken_lock_goes_to_the_next(world: World) {
    let name = world.name("broken");
    let (a, b, operator) = (world.locks().await, world.locks().await, world.locks().await);
    let guard = a.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let next = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    assert_eq!(operator.revoke(&name, guard.token()).await.unwrap(), Revocation::Revoked);
    let next = soon("the next is in", next).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    let cause = soon("the broken holder hears of it", guard.lost()).await;
    assert!(matches!(cause, LossCause::Gone | LossCause::Revoked | LossCause::SessionEnded), "{cause:?}");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

async fn a_holder_that_is_asked_to_leave_hears_of_it(world: World) {
    let name = world.name("asked");
    let (a, b, operator) = (world.locks().await, world.locks().await, world.locks().await);
    let guard = a.lock(&name).acquire().await.unwrap();
    assert_eq!(operator.revoke(&name, guard.token()).await.unwrap(), Revocation::Pending);
    assert_eq!(soon("the holder hears of it", guard.lost()).await, LossCause::Revoked);
    expect_kind(guard.fence(), ErrorKind::Lost);
    assert!(b.lock(&name).try_acquire().await.unwrap().is_none(), "the lock moved on before its holder left");
    guard.release().await.unwrap();
    // One that reacts is out when revoke returns.
    let guard = a.lock(&name).acquire().await.unwrap();
    let token = guard.token();
    tokio::spawn(async move {
        guard.lost().await;
        guard.release().await
    });
    assert_eq!(operator.revoke(&name, token).await.unwrap(), Revocation::Revoked);
    soon("the next is in", b.lock(&name).acquire()).await.unwrap().release().await.unwrap();
}

async fn breaking_needs_the_holders_token(world: World) {
    let name = world.name("token");
    let locks = world.locks().await;
    let old = locks.lock(&name).acquire().await.unwrap();
    let token = old.token();
    assert_eq!(old.release().await.unwrap(), Release::Released);
    assert_eq!(locks.revoke(&name, token).await.unwrap(), Revocation::NotHeld);
    let guard = locks.lock(&name).acquire().await.unwrap();
    assert_eq!(
        locks.revoke(&name, token).await.unwrap(),
        Revocation::NotHeld,
        "a predecessor's token broke the lock"
    );
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
