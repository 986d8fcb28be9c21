//! Several locks, all or nothing.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(a_set_is_all_or_nothing),
    case!(sets_in_any_order_do_not_deadlock),
    case!(a_set_names_each_lock_once),
];

async fn a_set_is_all_or_nothing(world: World) {
    let (a, b) = (world.name("a"), world.name("b"));
    let (mine, theirs) = (world.locks().await, world.locks().await);
    let held = theirs.lock(&b).acquire().await.unwrap();
    assert!(mine.lock_all([&b, &a]).try_acquire().await.unwrap().is_none());
    assert!(world.look(&a).await.is_none(), "a part of the set is held");
    // Long enough that an engine on a busy machine says that the lock is busy.
    let wait = Duration::from_secs(2);
    expect_kind(mine.lock_all([&a, &b]).wait(wait).acquire().await, ErrorKind::Busy);
    world.until_idle(&a).await;
    held.release().await.unwrap();
    let set = mine.lock_all([&b, &a]).acquire().await.unwrap();
    set.check().unwrap();
    assert_eq!(set.iter().map(|guard| guard.name().clone()).collect::<Vec<_>>(), [a.clone(), b.clone()]);
    assert!(set.get(a.as_str()).is_some() && set.get("other").is_none());
    assert_eq!(set.release().await.unwrap(), Release::Released);
    world.until_idle(&a).await;
    world.until_idle(&b).await;
}

async fn sets_in_any_order_do_not_deadlock(world: World) {
    let names = [world.name("a"), world.name("b"), world.name("c")];
    let tasks = (0..6).map(|task| {
        let (world, mut names) = (world.clone(), names.clone());
        names.rotate_left(task % 3);
        if task % 2 == 0 {
            names.reverse();
        }
        async move {
            let locks = world.locks().await;
            for _ in 0..5 {
                locks
                    .lock_all(&names)
                    .acquire()
                    .await
                    .expect("the set becomes free")
                    .release()
                    .await
                    .unwrap();
            }
        }
    });
    soon("every set is acquired", futures_util::future::join_all(tasks)).await;
}

async fn a_set_names_each_lock_once(world: World) {
    let locks = world.locks().await;
    let name = world.name("a");
    expect_kind(locks.lock_all([&name, &name]).try_acquire().await, ErrorKind::InvalidArgument);
    expect_kind(locks.lock_all::<[&str; 0]>([]).try_acquire().await, ErrorKind::InvalidArgument);
    assert!(world.look(&name).await.is_none());
}
