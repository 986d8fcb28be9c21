//! An operator breaks a lock.

use rustix::process::Signal;
use tollgate_core::Token;

use super::prelude::*;
use crate::helper::Helper;

pub(super) const CASES: &[Case] = &[
    case!(a_broken_lock_goes_to_the_next if |c| c.revoke != Revoke::Cooperative),
    case!(a_revoked_lock_waits_for_its_holder_to_leave if |c| c.revoke == Revoke::AskOrForce),
    case!(a_revoked_grant_is_not_renewed_and_ends_with_its_time if |c| c.revoke == Revoke::AskOrForce && expires(c)),
    case!(a_revoked_lock_that_does_not_expire_stays_with_its_holder if |c| {
        c.revoke == Revoke::AskOrForce && !expires(c) && reaches_processes(c)
    }),
    case!(a_holder_that_is_asked_to_leave_hears_of_it if |c| c.revoke == Revoke::Cooperative),
    case!(breaking_needs_the_holders_token),
];

async fn a_broken_lock_goes_to_the_next(world: World) {
    let name = world.name("broken");
    let (a, b, operator) = (world.locks().await, world.locks().await, world.locks().await);
    let guard = a.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let next = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    assert_eq!(operator.revoke_by_force(&name, guard.token()).await.unwrap(), Revocation::Revoked);
    let next = soon("the next claim is granted", next).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    let cause = soon("the broken holder is notified", guard.lost()).await;
    assert_eq!(cause, LossCause::Revoked, "an operator's break cannot be told from lost data");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

/// In both modes of holding that a backend may have: renewed by the client, and with a lease of its own.
async fn a_revoked_lock_waits_for_its_holder_to_leave(world: World) {
    let name = world.name("asked");
    let (a, b, operator) = (world.locks().await, world.locks().await, world.locks().await);
    let guard = a.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let next = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    assert_eq!(operator.revoke(&name, guard.token()).await.unwrap(), Revocation::Pending);
    assert_eq!(soon("the holder is notified", guard.lost()).await, LossCause::Revoked);
    expect_kind(guard.fence(), ErrorKind::Lost);
    // While its time is not over, which a busy machine may have let pass.
    if let Some(state) = world.look(&name).await
        && state.holders.iter().any(|holder| holder.token == Some(guard.token()))
    {
        assert!(!next.is_finished(), "the next claim was granted beside a holder that has not left");
    }
    let token = guard.token();
    guard.release().await.unwrap();
    let next = soon("the next claim is granted", next).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(next.release().await.unwrap(), Release::Released);
    assert_eq!(operator.revoke(&name, token).await.unwrap(), Revocation::NotHeld);
    world.until_idle(&name).await;
}

/// A holder that does not leave: its guard stays in the program's hands.
async fn a_revoked_grant_is_not_renewed_and_ends_with_its_time(world: World) {
    let name = world.name("stubborn");
    let (a, b, operator) = (world.locks().await, world.locks().await, world.locks().await);
    let clock = world.clock();
    let guard = a.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let beside = a.lock(world.name("beside")).ttl(world.ttl()).acquire().await.unwrap();
    let next = tokio::spawn({
        let (request, clock) = (b.lock(&name), clock.clone());
        async move { (request.acquire().await, clock.now()) }
    });
    world.until(&name, 1, 1).await;
    assert_eq!(operator.revoke(&name, guard.token()).await.unwrap(), Revocation::Pending);
    assert_eq!(soon("the holder is notified", guard.lost()).await, LossCause::Revoked);
    let deadline = guard.deadline().expect("the guard has a deadline");
    let (next, at) = soon("the next claim is granted though the holder did not leave", next).await.unwrap();
    assert!(
        at >= deadline,
        "the next claim was granted {:?} before the holder's deadline",
        deadline.since(at)
    );
    beside.check().expect("the client keeps its other locks");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    next.unwrap().release().await.unwrap();
    beside.release().await.unwrap();
}

/// One that does not leave: first a guard that stays in the program's hands, then a process that is stopped and killed.
async fn a_revoked_lock_that_does_not_expire_stays_with_its_holder(world: World) {
    let name = world.name("stays");
    let (a, b, operator) = (world.locks().await, world.locks().await, world.locks().await);
    let guard = a.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let beside = a.lock(world.name("beside")).ttl(world.ttl()).acquire().await.unwrap();
    let mut next = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    assert_eq!(operator.revoke(&name, guard.token()).await.unwrap(), Revocation::Pending);
    assert_eq!(soon("the holder is notified", guard.lost()).await, LossCause::Revoked);
    let stays = tokio::time::timeout(world.ttl() * 2, &mut next).await;
    assert!(stays.is_err(), "the next claim was granted beside a holder that has not left");
    assert_eq!(
        operator.revoke(&name, guard.token()).await.unwrap(),
        Revocation::Pending,
        "the same request again"
    );
    beside.check().expect("the client keeps its other locks");
    beside.release().await.unwrap();
    guard.release().await.unwrap();
    soon("the next claim is granted", next).await.unwrap().unwrap().release().await.unwrap();
    // A connection that is used again is not the one that was marked.
    let again = a.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    world.until(&name, 1, 0).await;
    again.check().expect("the client holds another grant");
    again.release().await.unwrap();

    let mut holder = Helper::start(&world).await;
    let token = Token::new(holder.acquire(&name, world.ttl()).await).unwrap();
    // Until then it may be known only that the lock is held.
    eventually("the operator sees the token", || async {
        let state = world.look(&name).await?;
        state.holders.iter().any(|holder| holder.token == Some(token)).then_some(())
    })
    .await;
    holder.signal(Signal::STOP);
    let mut next = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    assert_eq!(operator.revoke(&name, token).await.unwrap(), Revocation::Pending);
    let stays = tokio::time::timeout(world.ttl() * 2, &mut next).await;
    assert!(stays.is_err(), "the next claim was granted beside a stopped holder");
    holder.kill();
    soon("the next claim is granted", next).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(operator.revoke(&name, token).await.unwrap(), Revocation::NotHeld);
    world.until_idle(&name).await;
}

async fn a_holder_that_is_asked_to_leave_hears_of_it(world: World) {
    let name = world.name("asked");
    let (a, b, operator) = (world.locks().await, world.locks().await, world.locks().await);
    let guard = a.lock(&name).acquire().await.unwrap();
    assert_eq!(operator.revoke(&name, guard.token()).await.unwrap(), Revocation::Pending);
    assert_eq!(soon("the holder is notified", guard.lost()).await, LossCause::Revoked);
    expect_kind(guard.fence(), ErrorKind::Lost);
    assert!(
        b.lock(&name).try_acquire().await.unwrap().is_none(),
        "the lock was granted again before its holder left"
    );
    guard.release().await.unwrap();
    // One that reacts is out when revoke returns.
    let guard = a.lock(&name).acquire().await.unwrap();
    let token = guard.token();
    tokio::spawn(async move {
        guard.lost().await;
        guard.release().await
    });
    assert_eq!(operator.revoke(&name, token).await.unwrap(), Revocation::Revoked);
    soon("the next claim is granted", b.lock(&name).acquire()).await.unwrap().release().await.unwrap();
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
