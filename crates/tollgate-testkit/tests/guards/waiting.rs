//! Those who wait by wait-die, in a queue in which places can be lost.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_core::{LockState, OnDeadlock, PartyHandle};

use crate::support::*;

/// Shows those who wait in reverse once the first of them has lost its place.
struct Displaces {
    inner: Arc<dyn Backend>,
    displaced: AtomicBool,
}

impl Layer for Displaces {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move {
            let mut state = self.inner.inspect(name).await?;
            if let (Some(state), true) = (&mut state, self.displaced.load(Ordering::Relaxed)) {
                state.waiters.reverse();
            }
            Ok(state)
        })
    }
}

#[tokio::test]
async fn who_has_lost_its_place_to_somebody_older_gives_up() {
    let inner = session();
    let displaces = Arc::new(Displaces { inner: inner.clone(), displaced: AtomicBool::new(false) });
    let locks = Locks::new(displaces.clone()).unwrap();
    let held = locks.lock("wanted").acquire().await.unwrap();
    let (older, younger) = (PartyHandle::new(), PartyHandle::new());
    let by = |name: &str, party: &PartyHandle| locks.lock(name).party(party).on_deadlock(OnDeadlock::WaitDie);
    let first = by("older", &older).acquire().await.unwrap();
    tokio::time::sleep(ms(5)).await;
    let second = by("younger", &younger).acquire().await.unwrap();
    let waiters = async |count| {
        eventually("they wait", async || {
            let state = inner.inspect(&name("wanted")).await.unwrap()?;
            (state.waiters.len() == count).then_some(())
        })
        .await;
    };
    let waits = tokio::spawn(by("wanted", &younger).acquire());
    waiters(1).await;
    let behind = tokio::spawn(by("wanted", &older).acquire());
    waiters(2).await;
    // Both have looked from their places: neither has anybody older ahead.
    tokio::time::sleep(ms(300)).await;
    assert!(!waits.is_finished() && !behind.is_finished());
    displaces.displaced.store(true, Ordering::Relaxed);
    let told = tokio::time::timeout(PATIENCE, waits).await.expect("it looks again").unwrap();
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Deadlock);
    held.release().await.unwrap();
    for guard in [behind.await.unwrap().unwrap(), first, second] {
        guard.release().await.unwrap();
    }
}
