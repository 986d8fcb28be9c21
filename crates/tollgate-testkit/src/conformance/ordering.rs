//! Waiting is fair and quiet.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(waiters_are_served_in_order if queues),
    case!(a_waiter_that_gives_up_does_not_hold_up_the_queue),
    case!(many_waiters_are_all_served),
    case!(waiting_ends_soon_after_the_release),
    case!(a_grant_says_whether_somebody_was_in_the_way),
];

async fn waiters_are_served_in_order(world: World) {
    const WAITERS: usize = 12;
    let name = world.name("queue");
    let clients = [world.locks().await, world.locks().await];
    let holder = clients[0].lock(&name).acquire().await.unwrap();
    let served = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for waiter in 0..WAITERS {
        let (request, served) = (clients[waiter % 2].lock(&name), served.clone());
        waiters.push(tokio::spawn(async move {
            let guard = request.acquire().await.expect("the waiter is granted the lock");
            served.lock().unwrap().push((waiter, guard.token()));
            guard.release().await.expect("a release is answered");
        }));
        world.until(&name, 1, waiter + 1).await;
    }
    holder.release().await.unwrap();
    soon("every waiter is granted the lock", futures_util::future::join_all(waiters)).await;
    let served = served.lock().unwrap();
    assert_eq!(
        served.iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>(),
        (0..WAITERS).collect::<Vec<_>>()
    );
    assert!(served.is_sorted_by_key(|(_, token)| *token), "tokens follow the order of service");
}

async fn a_grant_says_whether_somebody_was_in_the_way(world: World) {
    let name = world.name("waited");
    let (first, second) = (world.backend().await, world.backend().await);
    let claim = world.claim(&name, Mode::Exclusive);
    let grant = first.acquire(&claim).await.unwrap();
    assert!(!grant.waited, "the lock was never contended");
    let waits = world.claim(&name, Mode::Exclusive);
    let (waited, ()) = tokio::join!(second.acquire(&waits), async {
        world.until(&name, 1, 1).await;
        first.release(&grant).await.unwrap();
    });
    let waited = waited.unwrap();
    assert!(waited.waited);
    second.release(&waited).await.unwrap();
}

async fn a_waiter_that_gives_up_does_not_hold_up_the_queue(world: World) {
    let name = world.name("queue");
    let (a, b, c) = (world.locks().await, world.locks().await, world.locks().await);
    let holder = a.lock(&name).acquire().await.unwrap();
    let gives_up = tokio::spawn(b.lock(&name).acquire());
    world.until(&name, 1, 1).await;
    let stays = tokio::spawn(c.lock(&name).acquire());
    world.until(&name, 1, 2).await;
    gives_up.abort();
    world.until(&name, 1, 1).await;
    holder.release().await.unwrap();
    soon("the next waiter is granted the lock", stays).await.unwrap().unwrap().release().await.unwrap();
    world.until_idle(&name).await;
}

/// One who is inside, until dropped: one that gives up does not leave the count behind.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn enter(inside: &Arc<AtomicUsize>) -> Self {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders overlapped");
        Self(inside.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn many_waiters_are_all_served(world: World) {
    // An engine without a queue makes everybody try again and again: fewer of them say as much.
    let waiters = if queues(world.capabilities()) { scale(200, 10_000) } else { scale(30, 200) };
    let name = world.name("crowd");
    let clients = [world.locks().await, world.locks().await, world.locks().await];
    let inside = Arc::new(AtomicUsize::new(0));
    let holder = clients[0].lock(&name).acquire().await.unwrap();
    let tasks = (0..waiters).map(|waiter| {
        let (request, inside) = (clients[waiter % clients.len()].lock(&name), inside.clone());
        tokio::spawn(async move {
            let guard = request.acquire().await.expect("the waiter is granted the lock");
            let counted = Counted::enter(&inside);
            // Whoever else is let in now runs here and counts, too.
            tokio::task::yield_now().await;
            drop(counted);
            guard.release().await.expect("a release is answered");
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let nobody_is_through = || {
        let through = tasks.iter().any(|task| task.is_finished());
        assert!(!through, "a wait ended beside the holder: two holders overlapped, or the wait failed");
    };
    until_waiting(&world, &name, waiters, nobody_is_through).await;
    // One in a hundred gives up in the middle of the queue.
    let giving_up = tasks.iter().step_by(100);
    let left = waiters - giving_up.len();
    giving_up.for_each(|task| task.abort());
    until_waiting(&world, &name, left, || {}).await;
    holder.release().await.unwrap();
    for (waiter, task) in tasks.into_iter().enumerate() {
        match task.await {
            Ok(()) => {}
            Err(error) => assert!(error.is_cancelled() && waiter % 100 == 0, "a waiter failed: {error}"),
        }
    }
    world.until_idle(&name).await;
}

/// Waits until so many are in the queue, however long that takes; the case has a limit. Without a queue there
/// is nothing to see, only time to give.
async fn until_waiting(world: &World, name: &LockName, waiters: usize, check: impl Fn()) {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        check();
        let waiting = world.look(name).await.map_or(0, |state| state.waiters.len());
        if waiting == waiters || !queues(world.capabilities()) {
            return;
        }
    }
}

async fn waiting_ends_soon_after_the_release(world: World) {
    let name = world.name("handover");
    let (a, b) = (world.locks().await, world.locks().await);
    let holder = a.lock(&name).ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let waiter = tokio::spawn(b.lock(&name).ttl(Duration::from_secs(60)).acquire());
    world.until(&name, 1, 1).await;
    holder.release().await.unwrap();
    let started = Instant::now();
    soon("the waiter is granted the lock", waiter).await.unwrap().unwrap().release().await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "the waiter did not notice the release, but only a timeout"
    );
}
