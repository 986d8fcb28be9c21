//! How many of something are under way, to be waited for.

use std::sync::Arc;

use tokio::sync::watch;

/// A number of things under way.
#[derive(Debug, Clone)]
pub(crate) struct Count(Arc<watch::Sender<usize>>);

/// One of them. It ends when this is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Counted(Count);

impl Default for Count {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Count {
    pub(crate) fn one(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    pub(crate) fn now(&self) -> usize {
        *self.0.borrow()
    }

    pub(crate) async fn none_left(&self) {
        let mut count = self.0.subscribe();
        // An error would mean that the sender is gone, which `self` is.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
