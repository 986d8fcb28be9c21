//! What `memory:` does beside the suite.

use futures_util::StreamExt;
use tollgate_core::{Happening, Token};

use crate::support::*;

#[tokio::test]
async fn engines_of_one_name_are_one_and_of_two_names_are_two() {
    let named = |name| locks(&(Arc::new(MemoryBackend::named(name).unwrap()) as Arc<dyn Backend>));
    let (one, same, another) = (named("core/one"), named("core/one"), named("core/another"));
    let guard = one.lock("lock").acquire().await.unwrap();
    assert!(same.lock("lock").try_acquire().await.unwrap().is_none(), "two are in at once");
    another
        .lock("lock")
        .try_acquire()
        .await
        .unwrap()
        .expect("it is another engine's")
        .release()
        .await
        .unwrap();
    let token = guard.token();
    drop((guard.release().await.unwrap(), one, same));
    let later = named("core/one").lock("lock").acquire().await.unwrap();
    assert!(later.token() > token, "tokens start again when nobody uses the engine");
}

#[tokio::test]
async fn tokens_are_larger_than_a_raised_floor() {
    let engine = MemoryBackend::new(clock(), &Keeper::global().unwrap());
    let locks = locks(&(Arc::new(engine.clone()) as Arc<dyn Backend>));
    let before = locks.lock("lock").acquire().await.unwrap();
    let floor = Token::new(before.token().get() + 1_000_000).unwrap();
    before.release().await.unwrap();
    engine.raise_floor(floor);
    for lock in ["lock", "another"] {
        assert!(locks.lock(lock).acquire().await.unwrap().token() > floor);
    }
    engine.raise_floor(Token::MIN);
    let after = locks.lock("third").acquire().await.unwrap();
    assert!(after.token() > floor, "a floor was lowered");
}

#[tokio::test]
async fn events_tell_how_each_grant_ended_and_only_of_the_prefix() {
    let backend = memory();
    let mut events = backend.events("seen/");
    let mut expected = Vec::new();
    for (lock, end) in
        [("seen/a", Happening::Released), ("seen/b", Happening::Revoked), ("seen/c", Happening::Expired)]
    {
        let unseen = granted(&*backend, &claim("unseen/seen/", ms(5000))).await;
        let grant = granted(&*backend, &claim(lock, ms(50))).await;
        match end {
            Happening::Released => drop(backend.release(&grant).await.unwrap()),
            Happening::Revoked => {
                let revoked = backend.revoke(&grant.name, grant.token, RevokeMode::Force).await;
                assert_eq!(revoked.unwrap(), tollgate_core::Revocation::Revoked);
            }
            _ => {}
        }
        backend.release(&unseen).await.unwrap();
        expected.extend([(lock, grant.token, Happening::Granted), (lock, grant.token, end)]);
    }
    for expected in expected {
        let event = soon("an event comes", events.next()).await.unwrap().unwrap();
        assert_eq!((event.name.as_str(), event.token, event.what), expected);
    }
}

/// 20 grants of a few milliseconds, most of them handed over from one client to another.
#[tokio::test]
async fn events_name_the_holder_of_every_grant_and_every_release() {
    let backend = memory();
    let mut events = backend.events("");
    let turns = [1, 2].map(|_| {
        let locks = locks(&backend);
        tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..10 {
                let guard = locks.lock("steady").meta("job", "steady").acquire().await.unwrap();
                tokens.push(guard.token());
                tokio::time::sleep(ms(2)).await;
                guard.release().await.unwrap();
            }
            tokens
        })
    });
    let mut tokens = Vec::new();
    for turn in turns {
        tokens.extend(turn.await.unwrap());
    }
    tokens.sort_unstable();
    for token in tokens {
        for what in [Happening::Granted, Happening::Released] {
            let event = soon("an event comes", events.next()).await.unwrap().unwrap();
            assert_eq!((event.token, event.what), (token, what));
            let holder = event.holder.expect("the holder is named");
            assert_eq!((holder.pid, &*holder.meta["job"]), (std::process::id(), "steady"));
        }
    }
}

#[tokio::test]
async fn events_tell_a_broken_lock_from_a_released_one() {
    let backend = memory();
    let mut events = backend.events("");
    let mut expected = Vec::new();
    for end in [Happening::Released, Happening::Revoked] {
        let grant = granted(&*backend, &claim("lock", ms(5000))).await;
        if end == Happening::Revoked {
            let revoked = backend.revoke(&grant.name, grant.token, RevokeMode::Ask).await;
            assert_eq!(revoked.unwrap(), tollgate_core::Revocation::Pending);
        }
        backend.release(&grant).await.unwrap();
        expected.extend([(grant.token, Happening::Granted), (grant.token, end)]);
    }
    for expected in expected {
        let event = soon("an event comes", events.next()).await.unwrap().unwrap();
        assert_eq!((event.token, event.what), expected);
    }
}

/// The engine's timer sleeps until a far expiry; a nearer one must wake it.
#[tokio::test]
async fn an_expiry_is_noticed_though_nobody_calls_the_engine() {
    let backend = memory();
    let _far = granted(&*backend, &claim("far", Duration::from_secs(600))).await;
    // So that the timer has gone to sleep.
    tokio::time::sleep(ms(100)).await;
    let near = granted(&*backend, &claim("near", ms(300))).await;
    let next = soon("the next is in", backend.acquire(&claim("near", ms(300)))).await.unwrap();
    assert!(next.token > near.token);
}
