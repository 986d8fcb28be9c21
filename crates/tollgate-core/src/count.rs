//! How many of something are under way, to be waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A number of things under way. To count one costs next to nothing: every lock does it twice.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    under_way: AtomicUsize,
    /// The last one ended.
    none: Notify,
}

/// One of them. It ends when this is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Counted(Count);

impl Count {
    pub(crate) fn one(&self) -> Counted {
        self.0.under_way.fetch_add(1, Ordering::AcqRel);
        Counted(self.clone())
    }

    pub(crate) fn now(&self) -> usize {
        self.0.under_way.load(Ordering::Acquire)
    }

    pub(crate) async fn none_left(&self) {
        loop {
            let ended = self.0.none.notified();
            if self.now() == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Counted {
    /// One more of the same.
    pub(crate) fn another(&self) -> Self {
        self.0.one()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Shared { under_way, none } = &*self.0.0;
        if under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_woken_by_the_last_one() {
        let count = Count::default();
        count.none_left().await;
        let (one, two) = (count.one(), count.one());
        let waiting = tokio::spawn({
            let count = count.clone();
            async move { count.none_left().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && count.now() == 1);
        drop(two);
        waiting.await.unwrap();
    }
}
