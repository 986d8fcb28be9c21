//! Observers of an election whose engine has nodes that lag behind, or cannot tell what happens.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use tollgate_core::backend::{BoxFuture, BoxStream};
use tollgate_core::layer::Layer;
use tollgate_core::{Backend, Event, LockName, LockState, Locks, Result, events};
use tollgate_testkit::fakes::polling::{self, PollingBackend};

use crate::support::{Operation, Trouble, clock, memory, troubled};

/// Answers from what it saw before, while it lags.
struct Lagging {
    inner: Arc<dyn Backend>,
    seen: Mutex<Vec<Option<LockState>>>,
    lags: Mutex<Option<usize>>,
}

impl Lagging {
    /// From now on it tells the look with this number again; the newest if there is none.
    fn lag(&self, at: Option<usize>) {
        *self.lags.lock().unwrap() = at;
    }
}

impl Layer for Lagging {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(async move {
            let now = self.inner.inspect(name).await?;
            let mut seen = self.seen.lock().unwrap();
            seen.push(now.clone());
            Ok(self.lags.lock().unwrap().map_or(now, |at| seen[at].clone()))
        })
    }
}

#[tokio::test]
async fn an_observer_never_goes_back_to_a_smaller_epoch() {
    let inner = memory();
    let lagging = Arc::new(Lagging { inner: inner.clone(), seen: Mutex::default(), lags: Mutex::default() });
    let (locks, watcher) = (Locks::new(inner).unwrap(), Locks::new(lagging.clone()).unwrap());
    let (election, watched) = (locks.election("e"), watcher.election("e"));
    let mut leaders = pin!(watched.observe());
    let first = election.campaign("one").await.unwrap();
    assert_eq!(leaders.next().await.unwrap().unwrap().epoch, first.epoch());
    first.resign().await.unwrap();
    let second = election.campaign("two").await.unwrap();
    assert_eq!(leaders.next().await.unwrap().unwrap().epoch, second.epoch());
    // The first look has seen the first leader.
    lagging.lag(Some(0));
    assert_eq!(
        watched.leader().await.unwrap().unwrap().value,
        "one",
        "whoever asks once is told what the node knows"
    );
    let looks = lagging.seen.lock().unwrap().len();
    let silent = tokio::time::timeout(Duration::from_millis(1500), leaders.next()).await;
    assert!(silent.is_err(), "it went back: {silent:?}");
    assert!(lagging.seen.lock().unwrap().len() > looks, "it has looked meanwhile");
    // What is new in the same epoch is seen as soon as the node has caught up, and so is the next leader.
    second.proclaim("two, ready").await.unwrap();
    assert!(leaders.next().now_or_never().is_none());
    lagging.lag(None);
    let seen = leaders.next().await.unwrap().unwrap();
    assert_eq!((seen.epoch, seen.value.as_str()), (second.epoch(), "two, ready"));
    second.resign().await.unwrap();
    let third = election.campaign("three").await.unwrap();
    assert_eq!(leaders.next().await.unwrap().unwrap().epoch, third.epoch());
    third.resign().await.unwrap();
}

#[tokio::test]
async fn what_is_said_after_a_proclamation_that_nobody_answered_is_news() {
    let (locks, faulty) = troubled(&memory());
    let election = locks.election("e");
    let leadership = election.campaign("one").await.unwrap();
    let mut leaders = pin!(election.observe());
    assert_eq!(leaders.next().await.unwrap().unwrap().value, "one");
    faulty.next(Operation::Extend, Trouble::ReplyLost);
    leadership.proclaim("two").await.unwrap_err();
    assert_eq!(leaders.next().await.unwrap().unwrap().value, "two", "it was said all the same");
    leadership.proclaim("three").await.unwrap();
    let news = tokio::time::timeout(Duration::from_secs(5), leaders.next()).await.expect("it is news");
    assert_eq!(news.unwrap().unwrap().value, "three");
    leadership.resign().await.unwrap();
}

/// Counts how often somebody looks, at all locks or at one.
struct Looked {
    inner: Arc<dyn Backend>,
    lists: AtomicUsize,
    inspects: AtomicUsize,
}

impl Layer for Looked {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        self.inspects.fetch_add(1, Ordering::Relaxed);
        self.inner.inspect(name)
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list(prefix)
    }

    /// As an engine does that cannot tell.
    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, clock(), prefix, Duration::from_millis(50))
    }
}

#[tokio::test]
async fn an_observer_looks_at_its_own_lock_alone_where_the_engine_cannot_tell() {
    let inner: Arc<dyn Backend> = Arc::new(PollingBackend::new(&polling::start(), clock()));
    let others = Locks::new(inner.clone()).unwrap();
    let requests: Vec<_> = (0..1000).map(|number| others.lock(format!("other/{number}"))).collect();
    let held = join_all(requests.iter().map(|request| request.clone().no_renew().acquire())).await;
    assert!(held.iter().all(Result::is_ok));
    let looked = Arc::new(Looked { inner, lists: AtomicUsize::default(), inspects: AtomicUsize::default() });
    let locks = Locks::new(looked.clone()).unwrap();
    let election = locks.election("e");
    let mut leaders = pin!(election.observe());
    for value in ["one", "two", "three"] {
        let leadership = election.campaign(value).await.unwrap();
        let leader = tokio::time::timeout(Duration::from_secs(10), leaders.next()).await.expect("it is seen");
        assert_eq!((leader.as_ref().unwrap().as_ref().unwrap().epoch), leadership.epoch());
        leadership.resign().await.unwrap();
    }
    assert!(looked.inspects.load(Ordering::Relaxed) >= 3);
    assert_eq!(looked.lists.load(Ordering::Relaxed), 0, "it asked for everybody's");
}
