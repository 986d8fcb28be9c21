//! Engines that do not answer, behind a limit.

use futures_util::StreamExt;
use tollgate_core::layer::Timeout;

use crate::support::*;

const LIMIT: Duration = ms(150);

/// An engine behind a limit, and the trouble it is in.
fn limited() -> (Arc<Faulty>, Arc<dyn Backend>) {
    let faulty = Faulty::new(memory());
    let limited = Timeout::new(faulty.clone(), clock(), LIMIT).unwrap();
    (faulty, Arc::new(limited))
}

/// Fails unless `request` is given up after the limit, and not long after it.
async fn expect_limit<T: std::fmt::Debug>(kind: ErrorKind, request: impl Future<Output = Result<T>>) {
    let started = Instant::now();
    let error = expect_kind(soon("the limit is over", request).await, kind);
    assert!(started.elapsed() >= LIMIT, "given up too early: {error}");
    assert!(error.to_string().contains("150ms"), "{error}");
}

#[tokio::test]
async fn what_may_have_been_executed_is_indeterminate_after_the_limit() {
    let (faulty, backend) = limited();
    for operation in [Operation::TryAcquire, Operation::Withdraw, Operation::Extend, Operation::Release] {
        faulty.always(operation, Trouble::Silence);
    }
    let claim = claim("a", ms(30_000));
    let grant = Grant::new(&claim, tollgate_core::Token::MIN, Deadline::Unknown);
    expect_limit(ErrorKind::Indeterminate, backend.try_acquire(&claim)).await;
    expect_limit(ErrorKind::Indeterminate, backend.withdraw(&claim)).await;
    expect_limit(ErrorKind::Indeterminate, backend.extend(&grant, claim.ttl, None)).await;
    expect_limit(ErrorKind::Indeterminate, backend.release(&grant)).await;
}

#[tokio::test]
async fn an_engine_that_is_silent_from_the_start_is_not_waited_for() {
    let (faulty, backend) = limited();
    let locks = locks(&backend);
    faulty.next(Operation::Acquire, Trouble::Silence);
    expect_limit(ErrorKind::Indeterminate, locks.lock("a").acquire()).await;
    until_idle(&*backend, "a").await;
}

#[tokio::test]
async fn a_busy_lock_is_waited_for_beyond_the_limit() {
    let (_, backend) = limited();
    let locks = locks(&backend);
    let held = locks.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("a").acquire());
    tokio::time::sleep(LIMIT * 3).await;
    held.release().await.unwrap();
    drop(soon("it gets in", waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_try_that_is_given_up_by_the_limit_leaves_nothing_behind() {
    let (faulty, backend) = limited();
    faulty.next(Operation::TryAcquire, Trouble::SilenceAfter);
    let locks = locks(&backend);
    expect_kind(locks.lock("a").try_acquire().await, ErrorKind::Indeterminate);
    until_idle(&*backend, "a").await;
}

/// An engine that nobody can look at.
struct Unseen(Arc<dyn Backend>);

impl Layer for Unseen {
    fn inner(&self) -> &dyn Backend {
        &*self.0
    }

    fn inspect<'a>(&'a self, _: &'a LockName) -> BoxFuture<'a, Result<Option<tollgate_core::LockState>>> {
        Box::pin(std::future::pending())
    }

    fn list(&self, _: &str) -> tollgate_core::BoxStream<'_, Result<tollgate_core::LockState>> {
        Box::pin(futures_util::stream::pending())
    }

    fn revoke<'a>(
        &'a self,
        _: &'a LockName,
        _: tollgate_core::Token,
        _: tollgate_core::RevokeMode,
    ) -> BoxFuture<'a, Result<tollgate_core::Revocation>> {
        Box::pin(std::future::pending())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn what_only_looks_is_timed_out_after_the_limit() {
    let backend = Timeout::new(altered(Unseen(memory())), clock(), LIMIT).unwrap();
    let backend: &dyn Backend = &backend;
    expect_limit(ErrorKind::Timeout, backend.inspect(&name("a"))).await;
    let mut list = backend.list("");
    expect_limit(ErrorKind::Timeout, async { list.next().await.expect("an error") }).await;
    assert!(list.next().await.is_none(), "it ends there");
    assert!(list.next().await.is_none(), "and may be asked again");
    expect_limit(
        ErrorKind::Indeterminate,
        backend.revoke(&name("a"), tollgate_core::Token::MIN, tollgate_core::RevokeMode::Force),
    )
    .await;
    soon("close does not wait for ever", backend.close()).await;
}

#[tokio::test]
async fn waiting_for_a_lock_has_no_limit() {
    let (_, backend) = limited();
    let locks = locks(&backend);
    let held = locks.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("a").acquire());
    tokio::time::sleep(LIMIT * 3).await;
    held.release().await.unwrap();
    let next = soon("its turn comes", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}
