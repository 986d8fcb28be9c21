//! A limit on how long something may take, for what is nearly always much faster.
//!
//! A timer for each statement costs more than it looks: to set one wakes the thread that waits for timers. Here one task on
//! the keeper counts for all statements that are under way, and only while there are some.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tollgate_core::Keeper;

/// How often is counted: limits are as exact as this.
const TICK: Duration = Duration::from_millis(250);
/// After how many ticks without anything under way nobody counts any more.
const REST_AFTER: u32 = 20;

/// Something that is under way.
#[derive(Debug)]
struct Flight {
    /// How many ticks are left.
    left: AtomicU32,
    waker: AtomicWaker,
}

/// Everything that is under way, or was until the last tick.
#[derive(Debug)]
struct Flights {
    all: Vec<Weak<Flight>>,
    counted: bool,
}

static FLIGHTS: Mutex<Flights> = Mutex::new(Flights { all: Vec::new(), counted: false });

fn flights() -> MutexGuard<'static, Flights> {
    FLIGHTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `future` gives, or nothing if that takes longer than `limit`, and up to half a second more.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut flight: Option<Arc<Flight>> = None;
    let outcome = std::future::poll_fn(|context| {
        if let Poll::Ready(outcome) = future.as_mut().poll(context) {
            return Poll::Ready(Some(outcome));
        }
        let flight = flight.get_or_insert_with(|| begin(limit));
        flight.waker.register(context.waker());
        if flight.left.load(Ordering::Relaxed) == 0 { Poll::Ready(None) } else { Poll::Pending }
    });
    outcome.await
}

fn begin(limit: Duration) -> Arc<Flight> {
    // The next tick may come at once.
    let ticks = u32::try_from(limit.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX - 1) + 1;
    let flight = Arc::new(Flight { left: AtomicU32::new(ticks), waker: AtomicWaker::new() });
    let mut flights = flights();
    flights.all.push(Arc::downgrade(&flight));
    // Whoever has a backend has a keeper.
    if !flights.counted
        && let Ok(keeper) = Keeper::global()
    {
        flights.counted = true;
        drop(keeper.spawn(count()));
    }
    flight
}

/// Counts until nothing is under way for a while.
async fn count() {
    let mut quiet = 0;
    loop {
        tokio::time::sleep(TICK).await;
        let mut flights = flights();
        flights.all.retain(|flight| flight.upgrade().is_some_and(|flight| tick(&flight)));
        quiet = if flights.all.is_empty() { quiet + 1 } else { 0 };
        if quiet > REST_AFTER {
            flights.counted = false;
            return;
        }
    }
}

/// Counts for one of them. Answers whether it may go on.
fn tick(flight: &Flight) -> bool {
    let left = flight.left.load(Ordering::Relaxed).saturating_sub(1);
    flight.left.store(left, Ordering::Relaxed);
    if left == 0 {
        flight.waker.wake();
    }
    left > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_done_in_time_is_not_disturbed_and_what_never_ends_does() {
        assert_eq!(within(TICK, async { 1 }).await, Some(1));
        let soon = async {
            tokio::time::sleep(TICK * 2).await;
            2
        };
        assert_eq!(within(TICK * 20, soon).await, Some(2));
        let began = std::time::Instant::now();
        assert_eq!(within(TICK, std::future::pending::<()>()).await, None);
        assert!(began.elapsed() >= TICK, "{:?}", began.elapsed());
    }
}
