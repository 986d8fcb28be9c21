//! Observers of an election whose engine has nodes that lag behind.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tollgate_core::backend::BoxFuture;
use tollgate_core::layer::Layer;
use tollgate_core::{Backend, LockName, LockState, Locks, Result};

use crate::support::{Operation, Trouble, memory, troubled};

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
