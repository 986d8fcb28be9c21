//! A driver that panics costs its own lock, and nothing else.

use crate::support::*;

/// Everything that is asked of it in the background panics.
struct Panics(Arc<dyn Backend>);

impl Layer for Panics {
    fn inner(&self) -> &dyn Backend {
        &*self.0
    }
    fn extend<'a>(
        &'a self,
        _: &'a Grant,
        _: Duration,
        _: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async { panic!("a bug in a driver's extend, as the test wants it") })
    }
    fn release<'a>(&'a self, _: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async { panic!("a bug in a driver's release, as the test wants it") })
    }
}

#[tokio::test]
async fn a_loss_is_signalled_though_renewals_panic() {
    let locks = locks(&altered(Panics(memory())));
    let guard = locks.lock("lock").ttl(ms(300)).acquire().await.unwrap();
    assert_eq!(within(ms(3000), "the loss is signalled", guard.lost()).await, LossCause::Expired);
}

#[tokio::test]
async fn close_returns_though_a_background_release_panics() {
    let locks = locks(&altered(Panics(memory())));
    drop(locks.lock("lock").ttl(ms(300)).acquire().await.unwrap());
    within(ms(5000), "close returns", locks.close()).await;
}
