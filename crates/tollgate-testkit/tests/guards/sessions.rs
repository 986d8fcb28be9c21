//! What an engine tells unasked is heard when it tells.

use tokio::sync::Notify;
use tollgate_core::Moment;
use tollgate_core::capabilities::Liveness;
use tollgate_testkit::fakes::session::{self, SessionBackend};

use crate::support::*;

#[tokio::test]
async fn a_session_that_the_engine_ends_is_heard_of_long_before_the_next_renewal() {
    /// Says that the session is over when the test wants it to.
    struct Tells(Arc<dyn Backend>, Capabilities, Arc<Notify>);
    impl Layer for Tells {
        fn inner(&self) -> &dyn Backend {
            &*self.0
        }
        fn capabilities(&self) -> &Capabilities {
            &self.1
        }
        fn lost<'a>(&'a self, _: &'a Grant) -> Option<BoxFuture<'a, LossCause>> {
            Some(Box::pin(async {
                self.2.notified().await;
                LossCause::SessionEnded
            }))
        }
    }
    let (inner, ended) = (memory(), Arc::new(Notify::new()));
    let capabilities = Capabilities { liveness: Liveness::Session, ..inner.capabilities().clone() };
    let locks = locks(&altered(Tells(inner, capabilities, ended.clone())));
    let guard = locks.lock("lock").ttl(Duration::from_secs(600)).acquire().await.unwrap();
    tokio::time::sleep(ms(100)).await;
    guard.check().unwrap();
    ended.notify_one();
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::SessionEnded);
}

/// A clock that is an hour ahead and stands still: a session on it is not kept alive, and believed in.
#[derive(Debug)]
struct Ahead(Moment);

impl Clock for Ahead {
    fn now(&self) -> Moment {
        self.0
    }
    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_session_that_ended_is_heard_of_by_guards_whose_renewals_are_not_answered() {
    let ttl = ms(600);
    let engine = session::start();
    let ahead = Arc::new(Ahead(clock().now() + Duration::from_secs(3600)));
    let backend: Arc<dyn Backend> = Arc::new(SessionBackend::new(&engine, ahead, Keeper::global().unwrap()));
    let (locks, faulty) = troubled(&backend);
    faulty.always(Operation::Extend, Trouble::Silence);
    let guard = locks.lock("lock").ttl(ttl).acquire().await.unwrap();
    until_idle(&*backend, "lock").await;
    guard.check().expect("nobody has been told yet");
    // Whoever uses the session next is told, and the session tells all its guards.
    let next = locks.lock("next").ttl(ttl).acquire().await.unwrap();
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::SessionEnded);
    next.check().expect("it lives in a new session");
}

#[tokio::test]
async fn a_revoked_lock_of_a_session_is_lost_by_the_next_renewal() {
    let backend = session();
    let locks = locks(&backend);
    let guard = locks.lock("lock").ttl(ms(900)).acquire().await.unwrap();
    let other = locks.lock("other").ttl(ms(900)).acquire().await.unwrap();
    locks.revoke_by_force("lock", guard.token()).await.unwrap();
    assert_eq!(soon("the loss is signalled", guard.lost()).await, LossCause::Revoked);
    other.check().expect("the session goes on");
}
