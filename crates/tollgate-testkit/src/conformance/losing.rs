//! Loss is loud, and comes by the deadline.

use std::sync::mpsc;

use super::prelude::*;
use crate::fault::{Faulty, Operation, Trouble};

pub(super) const CASES: &[Case] = &[
    case!(failing_renewals_mean_jeopardy_and_then_loss if expires),
    case!(a_loss_is_signalled_by_the_deadline_though_the_executor_is_blocked if expires),
    case!(a_renewal_that_works_again_ends_the_jeopardy),
    case!(work_is_cancelled_when_its_lock_is_lost if expires),
    case!(work_that_outlived_its_lock_is_not_called_done if expires),
];

async fn failing_renewals_mean_jeopardy_and_then_loss(world: World) {
    let backend = Faulty::new(world.backend().await);
    let locks = world.wrap(backend.clone());
    backend.always(Operation::Extend, Trouble::Refused);
    let guard = locks.lock(world.name("failing")).ttl(world.ttl()).acquire().await.unwrap();
    let mut watch = guard.watch();
    let jeopardy = soon("the guard is in jeopardy", watch.wait_for(|state| state != GuardState::Held)).await;
    assert_eq!(jeopardy, GuardState::Jeopardy, "a failed renewal is no loss yet");
    assert_eq!(guard.state(), GuardState::Jeopardy);
    guard.fence().expect("a lock in jeopardy is still held");
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::Expired);
    expect_kind(guard.fence(), ErrorKind::Lost);
}

async fn a_loss_is_signalled_by_the_deadline_though_the_executor_is_blocked(world: World) {
    for trouble in [Trouble::Silence, Trouble::RequestLost] {
        let backend = Faulty::new(world.backend().await);
        let locks = world.wrap(backend.clone());
        backend.always(Operation::Extend, trouble);
        let name = world.name(&format!("{trouble:?}"));
        let guard = locks.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
        let clock = world.clock();
        let deadline = clock.now() + guard.remaining().expect("a lease has an end");
        let (sender, receiver) = mpsc::channel();
        guard.on_lost(move |cause| sender.send((cause, clock.now())).expect("the case listens"));
        // Blocks this thread, and with it the case's only runtime.
        let (cause, at) = receiver.recv_timeout(PATIENCE).expect("the callback is called");
        assert_eq!(cause, LossCause::Expired);
        let late = at.since(deadline);
        assert!(late < Duration::from_millis(400), "the loss was signalled {late:?} after the deadline");
    }
}

async fn a_renewal_that_works_again_ends_the_jeopardy(world: World) {
    let backend = Faulty::new(world.backend().await);
    let locks = world.wrap(backend.clone());
    backend.next(Operation::Extend, Trouble::Refused);
    let guard = locks.lock(world.name("recovering")).ttl(world.ttl()).acquire().await.unwrap();
    let mut watch = guard.watch();
    soon("the guard is in jeopardy", watch.wait_for(|state| state == GuardState::Jeopardy)).await;
    soon("the guard is held again", watch.wait_for(|state| state == GuardState::Held)).await;
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Tells when the work it is part of ends.
struct Ends(Option<tokio::sync::oneshot::Sender<()>>);

impl Drop for Ends {
    fn drop(&mut self) {
        let told = self.0.take().map(|sender| sender.send(()));
        assert_eq!(told, Some(Ok(())));
    }
}

async fn work_is_cancelled_when_its_lock_is_lost(world: World) {
    let backend = Faulty::new(world.backend().await);
    let locks = world.wrap(backend.clone());
    backend.always(Operation::Extend, Trouble::Refused);
    let (sender, mut cancelled) = tokio::sync::oneshot::channel();
    let ends = Ends(Some(sender));
    let request = locks.lock(world.name("cancelled")).ttl(world.ttl());
    let work = request.run(async move |_| {
        let _ends = ends;
        std::future::pending::<()>().await;
    });
    expect_kind(soon("run returns", work).await, ErrorKind::Lost);
    cancelled.try_recv().expect("the work was dropped before run returned");
}

async fn work_that_outlived_its_lock_is_not_called_done(world: World) {
    let locks = world.locks().await;
    let work = locks.lock(world.name("outlived")).ttl(world.ttl()).max_hold(Duration::from_millis(100)).run(
        async |_| {
            // Never yields: nobody can cancel it.
            std::thread::sleep(Duration::from_millis(300));
        },
    );
    expect_kind(work.await, ErrorKind::Lost);
}
