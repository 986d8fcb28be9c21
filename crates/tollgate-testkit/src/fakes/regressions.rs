//! What the session shape has shown to be wrong in the core, and must not be again.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Backend, BootClock, GuardState, Keeper, Locks};

use super::session::{self, SessionBackend};
use crate::fault::{Faulty, Operation, Trouble};

const TTL: Duration = Duration::from_millis(600);

fn client(address: &str) -> Arc<dyn Backend> {
    let keeper = Keeper::global().unwrap();
    Arc::new(SessionBackend::new(address, Arc::new(BootClock::new(keeper.clone())), keeper))
}

/// `extend` may answer with a session's deadline that is a sixth of the ttl old, and the next one comes a
/// third later: half is gone by then, and that is not late.
#[tokio::test]
async fn a_guard_whose_session_is_renewed_on_time_is_not_in_jeopardy() {
    let locks = Locks::new(client(&session::start())).unwrap();
    let guard = locks.lock("lock").ttl(TTL).acquire().await.unwrap();
    let (mut looks, mut jeopardies) = (0, 0);
    for _ in 0..1500 {
        looks += 1;
        jeopardies += u32::from(guard.state() != GuardState::Held);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(jeopardies, 0, "of {looks} looks at a healthy guard");
}

/// A lease ends by itself when nobody renews it; a claim in a session that other guards keep alive does not.
#[tokio::test]
async fn a_release_goes_on_as_long_as_the_session_lives() {
    let engine = session::start();
    let watcher = client(&engine);
    let backend = Faulty::new(client(&engine));
    let locks = Locks::new(backend.clone()).unwrap();
    let guard = locks.lock("lock").ttl(TTL).acquire().await.unwrap();
    let name = guard.name().clone();
    backend.always(Operation::Release, Trouble::Refused);
    drop(guard);
    tokio::time::sleep(TTL * 2).await;
    backend.heal();
    tokio::time::sleep(TTL * 4).await;
    assert_eq!(watcher.inspect(&name).await.unwrap(), None, "no client has a guard, and the lock is held");
}

/// The same with a claim whose acquire was given up.
#[tokio::test]
async fn a_withdrawal_goes_on_as_long_as_the_session_lives() {
    let engine = session::start();
    let watcher = client(&engine);
    let backend = Faulty::new(client(&engine));
    let locks = Locks::new(backend.clone()).unwrap();
    backend.next(Operation::TryAcquire, Trouble::ReplyLost);
    backend.always(Operation::Withdraw, Trouble::Refused);
    let lost = locks.lock("lock").ttl(TTL).try_acquire().await;
    assert!(lost.is_err());
    tokio::time::sleep(TTL * 4).await;
    backend.heal();
    tokio::time::sleep(TTL * 4).await;
    let name = tollgate_core::LockName::new("lock").unwrap();
    assert_eq!(watcher.inspect(&name).await.unwrap(), None, "no client has a guard, and the lock is held");
}
