//! Who may be in together: exclusive, shared, permits, and nobody starves.

use super::prelude::*;
use crate::history::History;

pub(super) const CASES: &[Case] = &[
    case!(two_clients_never_hold_together),
    case!(a_busy_lock_is_an_outcome_and_leaves_nothing_behind),
    case!(readers_share if |c| c.modes.shared),
    case!(a_writer_and_readers_exclude_each_other if |c| c.modes.shared),
    case!(a_waiting_writer_is_not_starved_by_readers if |c| c.modes.shared && queues(c)),
    case!(a_waiting_writer_that_leaves_lets_readers_join if |c| c.modes.shared && queues(c)),
    case!(a_semaphore_lets_in_as_many_as_it_has_permits if |c| c.modes.permit),
    case!(permits_of_another_limit_are_kept_out if |c| c.modes.permit),
    case!(a_permit_cannot_be_fenced if |c| c.modes.permit),
    case!(a_mode_that_is_not_declared_is_refused if |c| !(c.modes.shared && c.modes.permit)),
];

/// For a million grants, on the engines that are slowest at it.
const LONG_ENOUGH: Duration = Duration::from_secs(1200);

async fn two_clients_never_hold_together(world: World) {
    const TASKS: usize = 8;
    // A million grants in a soak, or as many as there is time for where nobody is woken.
    let rounds = scale(12, 125_000);
    let since = Instant::now();
    let name = world.name("counter");
    let history = History::new(world.clock());
    let counter = Arc::new(std::sync::Mutex::new(0));
    let clients = [world.locks().await, world.locks().await];
    let tasks = (0..TASKS).map(|task| {
        let (locks, name, history, counter) =
            (clients[task % 2].clone(), name.clone(), history.clone(), counter.clone());
        async move {
            let mut grants = 0;
            while grants < rounds && since.elapsed() < LONG_ENOUGH {
                let asked = history.ask(&name, Mode::Exclusive);
                let guard = locks.lock(&name).acquire().await.expect("the lock becomes free");
                grants += 1;
                let held = asked.granted(guard.token());
                // Read, let others run, write: two in here at once lose an update.
                let seen = *counter.lock().unwrap();
                tokio::task::yield_now().await;
                *counter.lock().unwrap() = seen + 1;
                held.releasing();
                assert_eq!(guard.release().await.expect("a release is answered"), Release::Released);
            }
            grants
        }
    });
    let grants: usize = futures_util::future::join_all(tasks).await.into_iter().sum();
    println!("{grants} grants");
    assert_eq!(*counter.lock().unwrap(), grants, "an update was lost: two holders overlapped");
    history.check();
    world.until_idle(&name).await;
}

async fn a_busy_lock_is_an_outcome_and_leaves_nothing_behind(world: World) {
    let name = world.name("busy");
    let (mine, theirs) = (world.locks().await, world.locks().await);
    let guard = mine.lock(&name).acquire().await.unwrap();
    for _ in 0..3 {
        assert!(theirs.lock(&name).try_acquire().await.expect("busy is not an error").is_none());
    }
    let wait = Duration::from_secs(2);
    assert!(theirs.lock(&name).wait(wait).try_acquire().await.expect("busy is not an error").is_none());
    let error = expect_kind(theirs.lock(&name).wait(wait).acquire().await, ErrorKind::Busy);
    assert_eq!(error.lock(), Some(&name));
    let state = world.look(&name).await.expect("the lock is held");
    assert_eq!((state.holders.len(), state.waiters.len()), (1, 0), "waits that gave up left a claim behind");
    guard.release().await.unwrap();
    world.until_idle(&name).await;
}

async fn readers_share(world: World) {
    let name = world.name("page");
    let (a, b) = (world.locks().await, world.locks().await);
    let first = a.lock(&name).shared().acquire().await.unwrap();
    let second = soon("a second reader is admitted", b.lock(&name).shared().acquire()).await.unwrap();
    assert_ne!(first.token(), second.token(), "every grant has its own token");
    assert!(!first.fence().unwrap().is_exclusive());
    world.until(&name, 2, 0).await;
    first.release().await.unwrap();
    assert!(b.lock(&name).try_acquire().await.unwrap().is_none(), "a writer was admitted beside a reader");
    second.release().await.unwrap();
}

async fn a_writer_and_readers_exclude_each_other(world: World) {
    let name = world.name("page");
    let (a, b) = (world.locks().await, world.locks().await);
    let writer = a.lock(&name).acquire().await.unwrap();
    assert!(
        b.lock(&name).shared().try_acquire().await.unwrap().is_none(),
        "a reader was admitted beside a writer"
    );
    writer.release().await.unwrap();
    let reader = b.lock(&name).shared().acquire().await.unwrap();
    assert!(a.lock(&name).try_acquire().await.unwrap().is_none(), "a writer was admitted beside a reader");
    reader.release().await.unwrap();
}

async fn a_waiting_writer_is_not_starved_by_readers(world: World) {
    let name = world.name("page");
    let (a, b, c) = (world.locks().await, world.locks().await, world.locks().await);
    let reader = a.lock(&name).shared().acquire().await.unwrap();
    let writer = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    assert!(
        c.lock(&name).shared().try_acquire().await.unwrap().is_none(),
        "a reader overtook a waiting writer"
    );
    let late = tokio::spawn(c.lock(&name).shared().acquire());
    world.until(&name, 1, 2).await;
    reader.release().await.unwrap();
    let writer = soon("the writer is admitted", writer).await.unwrap().unwrap();
    world.until(&name, 1, 1).await;
    writer.release().await.unwrap();
    soon("the late reader is admitted", late).await.unwrap().unwrap().release().await.unwrap();
}

async fn a_waiting_writer_that_leaves_lets_readers_join(world: World) {
    let name = world.name("page");
    let (a, b, c) = (world.locks().await, world.locks().await, world.locks().await);
    let reader = a.lock(&name).shared().acquire().await.unwrap();
    let writer = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    let late = tokio::spawn(c.lock(&name).shared().acquire());
    world.until(&name, 1, 2).await;
    writer.abort();
    let late = soon("the late reader is admitted", late).await.unwrap().unwrap();
    world.until(&name, 2, 0).await;
    reader.release().await.unwrap();
    late.release().await.unwrap();
}

async fn a_semaphore_lets_in_as_many_as_it_has_permits(world: World) {
    let name = world.name("pool");
    let (a, b) = (world.locks().await, world.locks().await);
    let mut inside = Vec::new();
    for locks in [&a, &b, &a] {
        inside.push(soon("a permit is free", locks.lock(&name).permit(3).acquire()).await.unwrap());
    }
    assert!(b.lock(&name).permit(3).try_acquire().await.unwrap().is_none(), "a fourth permit was granted");
    let waiting = tokio::spawn(b.lock(&name).permit(3).acquire());
    world.until(&name, 3, 1).await;
    // The one in the middle leaves, not the oldest.
    inside.remove(1).release().await.unwrap();
    inside.push(soon("the freed permit is taken", waiting).await.unwrap().unwrap());
    let tokens: std::collections::BTreeSet<_> = inside.iter().map(|guard| guard.token()).collect();
    assert_eq!(tokens.len(), 3, "every grant has its own token");
    for guard in inside {
        guard.release().await.unwrap();
    }
    world.until_idle(&name).await;
}

async fn permits_of_another_limit_are_kept_out(world: World) {
    let name = world.name("pool");
    let locks = world.locks().await;
    let three = locks.lock(&name).permit(3).acquire().await.unwrap();
    for other in [locks.lock(&name).permit(2), locks.lock(&name).shared(), locks.lock(&name)] {
        assert!(other.try_acquire().await.unwrap().is_none());
    }
    expect_kind(locks.lock(&name).permit(0).try_acquire().await, ErrorKind::InvalidArgument);
    three.release().await.unwrap();
}

async fn a_permit_cannot_be_fenced(world: World) {
    let locks = world.locks().await;
    let permit = locks.lock(world.name("pool")).permit(2).acquire().await.unwrap();
    expect_kind(permit.fence(), ErrorKind::Unsupported);
    permit.release().await.unwrap();
}

async fn a_mode_that_is_not_declared_is_refused(world: World) {
    let locks = world.locks().await;
    let name = world.name("mode");
    if !world.capabilities().modes.shared {
        expect_kind(locks.lock(&name).shared().try_acquire().await, ErrorKind::Unsupported);
    }
    if !world.capabilities().modes.permit {
        expect_kind(locks.lock(&name).permit(2).try_acquire().await, ErrorKind::Unsupported);
    }
}
