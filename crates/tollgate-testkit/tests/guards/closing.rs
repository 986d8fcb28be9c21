//! After `close` nothing new begins, and what is held goes on.

use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_testkit::fakes::session;

use crate::support::*;

const TTL: Duration = ms(600);

#[tokio::test]
async fn a_guard_outlives_the_close_of_its_client() {
    for backend in [session_at(&session::start()), memory()] {
        let locks = locks(&backend);
        let guard = locks.lock("held").ttl(TTL).acquire().await.unwrap();
        soon("close returns", locks.close()).await;
        tokio::time::sleep(TTL * 3).await;
        guard.check().expect("a guard that is left stays valid");
        until(&*backend, "held", 1, 0).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        expect_kind(locks.lock("held").try_acquire().await, ErrorKind::InvalidArgument);
    }
}

#[tokio::test]
async fn close_closes_the_backend_only_when_no_guard_is_left() {
    /// Notes that it was closed.
    struct Notes(Arc<dyn Backend>, Arc<AtomicBool>);
    impl Layer for Notes {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn close(&self) -> BoxFuture<'_, ()> {
            self.1.store(true, Ordering::SeqCst);
            self.0.close()
        }
    }
    for is_held in [true, false] {
        let closed = Arc::new(AtomicBool::new(false));
        let locks = locks(&altered(Notes(session_at(&session::start()), closed.clone())));
        let guard = locks.lock("held").ttl(TTL).acquire().await.unwrap();
        let guard = is_held.then_some(guard);
        soon("close returns", locks.close()).await;
        assert_eq!(closed.load(Ordering::SeqCst), guard.is_none());
    }
}

#[tokio::test]
async fn an_acquire_that_waits_when_its_client_is_closed_fails() {
    let (engine, server) = (memory(), session::start());
    for (mine, backend) in [(engine.clone(), engine), (session_at(&server), session_at(&server))] {
        let (mine, theirs) = (locks(&mine), locks(&backend));
        let held = theirs.lock("held").ttl(TTL).acquire().await.unwrap();
        let waiter = tokio::spawn(mine.lock("held").ttl(TTL).acquire());
        until(&*backend, "held", 1, 1).await;
        soon("close returns", mine.close()).await;
        held.release().await.unwrap();
        let waited = soon("the waiter ends", waiter).await.unwrap();
        assert!(waited.is_err(), "granted after close: {waited:?}");
        until_idle(&*backend, "held").await;
    }
}
