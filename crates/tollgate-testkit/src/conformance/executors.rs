//! A caller who blocks its executor loses nothing.

use super::prelude::*;

pub(super) const CASES: &[Case] = &[case!(a_blocked_executor_loses_nothing)];

async fn a_blocked_executor_loses_nothing(world: World) {
    let name = world.name("blocked");
    let guard = world.locks().await.lock(&name).ttl(world.ttl()).acquire().await.unwrap();
    let called = Arc::new(std::sync::Mutex::new(None));
    guard.on_lost({
        let called = called.clone();
        move |cause| *called.lock().unwrap() = Some(cause)
    });
    // This thread runs the case's only runtime.
    std::thread::sleep(world.ttl() * 3);
    assert_eq!(guard.state(), GuardState::Held);
    assert_eq!(*called.lock().unwrap(), None);
    let other = world.locks().await;
    assert!(
        other.lock(&name).try_acquire().await.unwrap().is_none(),
        "the lock was granted to another client"
    );
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
