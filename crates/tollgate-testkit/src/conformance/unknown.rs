//! Unknown is not held: a reply that did not come leaves nothing behind.

use tollgate_core::Deadline;

use super::prelude::*;
use crate::fault::{Faulty, Operation, Trouble};
use crate::history::History;

pub(super) const CASES: &[Case] = &[
    case!(a_lost_reply_is_never_held_and_leaves_nothing_behind),
    case!(an_acquire_nobody_answers_can_be_given_up),
    case!(a_withdrawal_is_repeated_until_it_is_answered),
    case!(a_release_whose_reply_is_lost_is_repeated),
    case!(the_same_claim_again_has_the_same_token),
    case!(a_withdrawn_claim_is_never_granted),
    case!(seeded_faults_break_no_promise),
];

/// Long enough that nothing in these cases can end by expiry.
const LONG: Duration = Duration::from_secs(300);

async fn a_lost_reply_is_never_held_and_leaves_nothing_behind(world: World) {
    for trouble in [Trouble::ReplyLost, Trouble::RequestLost] {
        let backend = Faulty::new(world.backend().await);
        let locks = world.wrap(backend.clone());
        let name = world.name(&format!("{trouble:?}"));
        for _ in 0..scale(1, 1000) {
            backend.next(Operation::TryAcquire, trouble);
            expect_kind(locks.lock(&name).ttl(LONG).try_acquire().await, ErrorKind::Indeterminate);
            world.until_idle(&name).await;
            backend.next(Operation::Acquire, trouble);
            expect_kind(locks.lock(&name).ttl(LONG).acquire().await, ErrorKind::Indeterminate);
            world.until_idle(&name).await;
        }
    }
}

async fn an_acquire_nobody_answers_can_be_given_up(world: World) {
    for trouble in [Trouble::Silence, Trouble::SilenceAfter] {
        let backend = Faulty::new(world.backend().await);
        let locks = world.wrap(backend.clone());
        let name = world.name(&format!("{trouble:?}"));
        backend.next(Operation::Acquire, trouble);
        let wait = Duration::from_millis(100);
        expect_kind(locks.lock(&name).ttl(LONG).wait(wait).try_acquire().await, ErrorKind::Indeterminate);
        world.until_idle(&name).await;
        backend.next(Operation::Acquire, trouble);
        expect_kind(locks.lock(&name).ttl(LONG).wait(wait).acquire().await, ErrorKind::Indeterminate);
        world.until_idle(&name).await;
    }
}

async fn a_withdrawal_is_repeated_until_it_is_answered(world: World) {
    let backend = Faulty::new(world.backend().await);
    let locks = world.wrap(backend.clone());
    let name = world.name("stubborn");
    backend.next(Operation::TryAcquire, Trouble::ReplyLost);
    for trouble in [Trouble::Refused, Trouble::RequestLost, Trouble::Refused] {
        backend.next(Operation::Withdraw, trouble);
    }
    expect_kind(locks.lock(&name).ttl(LONG).try_acquire().await, ErrorKind::Indeterminate);
    world.until_idle(&name).await;
}

async fn a_release_whose_reply_is_lost_is_repeated(world: World) {
    for trouble in [Trouble::RequestLost, Trouble::ReplyLost, Trouble::Refused] {
        let backend = Faulty::new(world.backend().await);
        let locks = world.wrap(backend.clone());
        let name = world.name(&format!("{trouble:?}"));
        let guard = locks.lock(&name).ttl(LONG).acquire().await.unwrap();
        backend.next(Operation::Release, trouble);
        let kind =
            if trouble == Trouble::Refused { ErrorKind::Unavailable } else { ErrorKind::Indeterminate };
        expect_kind(guard.release().await, kind);
        world.until_idle(&name).await;
    }
}

async fn the_same_claim_again_has_the_same_token(world: World) {
    let name = world.name("again");
    let backend = world.backend().await;
    let claim = tollgate_core::Claim { standalone: true, ..world.claim(&name, Mode::Exclusive) };
    let Attempt::Granted(first) = backend.try_acquire(&claim).await.unwrap() else {
        panic!("a free lock was busy")
    };
    // The engine granted before it answered: this is the latest deadline that its lease allows.
    let latest = Deadline::counted_from(world.clock().now(), claim.ttl);
    tokio::time::sleep(Duration::from_millis(30)).await;
    match backend.try_acquire(&claim).await {
        Ok(Attempt::Granted(again)) => {
            assert_eq!(again.token, first.token, "one claim was granted twice");
            assert_eq!(again.owner, first.owner);
            if let (Deadline::At(again), Deadline::At(latest)) = (again.deadline, latest) {
                assert!(
                    again <= latest,
                    "a repeated request made the claim live longer than the engine knows"
                );
            }
        }
        // Busy says that nothing of the claim is left, and something is.
        Ok(Attempt::Busy(_)) => panic!("a claim that is held was called busy"),
        Err(_) => {}
    }
    assert_eq!(world.look(&name).await.expect("the lock is held").holders.len(), 1);
    backend.withdraw(&claim).await.unwrap();
    world.until_idle(&name).await;
}

async fn a_withdrawn_claim_is_never_granted(world: World) {
    let name = world.name("withdrawn");
    let backend = world.backend().await;
    let holder = world.locks().await.lock(&name).acquire().await.unwrap();
    let claim = world.claim(&name, Mode::Exclusive);
    let waiting = tokio::spawn({
        let (backend, claim) = (backend.clone(), claim.clone());
        async move { backend.acquire(&claim).await }
    });
    world.until(&name, 1, 1).await;
    waiting.abort();
    backend.withdraw(&claim).await.unwrap();
    backend.withdraw(&claim).await.expect("withdrawing twice is fine");
    holder.release().await.unwrap();
    world.until_idle(&name).await;
}

async fn seeded_faults_break_no_promise(world: World) {
    for seed in 1..=scale(3, 100) {
        one_seed(&world, seed as u64).await;
    }
}

async fn one_seed(world: &World, seed: u64) {
    let names = [world.name(&format!("{seed}/a")), world.name(&format!("{seed}/b"))];
    let history = History::new(world.clock());
    let backends = [0, 1, 2].map(|client: u64| (client, world.clone()));
    let clients = backends.into_iter().map(|(client, world)| {
        let (names, history) = (names.clone(), history.clone());
        async move {
            let backend = Faulty::seeded(world.backend().await, seed * 100 + client, 150);
            let locks = world.wrap(backend.clone());
            for round in 0..25 {
                let name = &names[round % 2];
                let request = locks.lock(name).ttl(world.ttl()).wait(Duration::from_millis(200));
                let asked = history.ask(name, Mode::Exclusive);
                let Ok(Some(guard)) =
                    tokio::time::timeout(PATIENCE, request.try_acquire()).await.unwrap_or(Ok(None))
                else {
                    continue;
                };
                let held = asked.granted(guard.token());
                tokio::time::sleep(Duration::from_millis(2)).await;
                if guard.check().is_ok() {
                    held.still();
                }
                // Answered or not: the history says when the lock was known to be held.
                let _ = tokio::time::timeout(Duration::from_millis(50), guard.release()).await;
            }
            backend.heal();
            soon("everything under way is answered", locks.close()).await;
        }
    });
    futures_util::future::join_all(clients).await;
    assert!(history.len() > 10, "seed {seed}: hardly any claim was granted");
    history.check();
    for name in &names {
        world.until_idle(name).await;
    }
}
