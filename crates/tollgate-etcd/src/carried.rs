//! A future that comes to its end whoever drops it.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tollgate_core::BoxFuture;

/// Polled by whoever waits for it, which costs no task; carried to its end by the runtime if that one gives up.
///
/// A runtime that ends before takes it along: nobody may rely on more than that it is worth trying.
pub(crate) struct Carried<T: Send + 'static>(Option<BoxFuture<'static, T>>);

impl<T: Send + 'static> Carried<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<T: Send + 'static> Future for Carried<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Carried<T> {
    fn drop(&mut self) {
        if let (Some(future), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(future);
        }
    }
}
