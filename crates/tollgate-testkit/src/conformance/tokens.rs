//! Every passage is numbered, and later ones carry larger numbers.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(a_later_acquisition_has_a_larger_token),
    case!(tokens_go_on_rising_after_a_lock_was_idle),
    case!(tokens_rise_through_a_hand_over),
    case!(tokens_rise_through_an_expiry if expires),
];

async fn a_later_acquisition_has_a_larger_token(world: World) {
    let name = world.name("token");
    let clients = [world.locks().await, world.locks().await];
    let mut last = 0;
    for round in 0..20 {
        let guard = clients[round % 2].lock(&name).acquire().await.unwrap();
        assert!(guard.token().get() > last, "token {} came after {last}", guard.token());
        assert_eq!(guard.fence().unwrap().token(), guard.token());
        last = guard.token().get();
        guard.release().await.unwrap();
    }
    if world.capabilities().modes.shared {
        let reader = clients[0].lock(&name).shared().acquire().await.unwrap();
        assert!(reader.token().get() > last, "shared grants draw from the same sequence of tokens");
        reader.release().await.unwrap();
    }
}

async fn tokens_go_on_rising_after_a_lock_was_idle(world: World) {
    let name = world.name("idle");
    let first = world.locks().await.lock(&name).acquire().await.unwrap();
    let token = first.token();
    first.release().await.unwrap();
    world.until_idle(&name).await;
    // A new client, so that nothing it remembers can help.
    let second = world.locks().await.lock(&name).acquire().await.unwrap();
    assert!(second.token() > token, "the counter did not outlive the name");
    second.release().await.unwrap();
}

async fn tokens_rise_through_a_hand_over(world: World) {
    let name = world.name("hand-over");
    let locks = world.locks().await;
    let first = locks.lock(&name).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    let token = first.token();
    first.release().await.unwrap();
    let second = soon("the waiter is granted the lock", waiting).await.unwrap().unwrap();
    assert!(second.token() > token);
    second.release().await.unwrap();
}

async fn tokens_rise_through_an_expiry(world: World) {
    let name = world.name("expiry");
    let backend = world.backend().await;
    let Attempt::Granted(first) = backend.try_acquire(&standalone(&world, &name)).await.unwrap() else {
        panic!("a free lock was busy");
    };
    let second =
        soon("the abandoned lock becomes free", world.locks().await.lock(&name).acquire()).await.unwrap();
    assert!(second.token() > first.token);
    second.release().await.unwrap();
}

/// A claim that nobody renews.
fn standalone(world: &World, name: &LockName) -> tollgate_core::Claim {
    tollgate_core::Claim { standalone: true, ..world.claim(name, Mode::Exclusive) }
}
