//! The clock deadlines are read from: CLOCK_BOOTTIME, which runs through suspend.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use tollgate_types::Moment;

use crate::keeper::Keeper;

/// A future that can be stored and sent.
///
/// Functions that connect or examine return one instead of being `async`: an `async fn` is compiled again in every crate
/// that awaits it, with all that it awaits.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tells the time that deadlines are compared with. Tests inject their own.
pub trait Clock: Send + Sync + std::fmt::Debug + 'static {
    /// The time now. Never goes back.
    fn now(&self) -> Moment;

    /// Completes at `when`, or as soon as it is noticed that the clock has jumped past it.
    ///
    /// A hint: whoever wakes from it reads the clock again before believing anything.
    fn sleep_until(&self, when: Moment) -> BoxFuture<'static, ()>;
}

/// CLOCK_BOOTTIME of this host. Timers run on the keeper's thread, whatever the caller's executor is.
#[derive(Debug, Clone)]
pub struct BootClock {
    keeper: Keeper,
}

impl BootClock {
    /// The clock whose timers `keeper` drives.
    pub fn new(keeper: Keeper) -> Self {
        Self { keeper }
    }
}

/// CLOCK_BOOTTIME, now.
pub(crate) fn boottime() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Moment::from_nanos(secs * 1_000_000_000 + nanos)
}

impl Clock for BootClock {
    fn now(&self) -> Moment {
        boottime()
    }

    fn sleep_until(&self, when: Moment) -> BoxFuture<'static, ()> {
        let keeper = self.keeper.clone();
        Box::pin(async move {
            let mut jumps = keeper.jumps();
            loop {
                let left = when.since(boottime());
                if left.is_zero() {
                    return;
                }
                tokio::select! {
                    () = keeper.sleep(left) => {}
                    _ = jumps.changed() => {}
                }
            }
        })
    }
}

/// Tells sleepers when CLOCK_BOOTTIME has moved further than CLOCK_MONOTONIC, which timers count on: the
/// machine was suspended, and what was due in between is due now.
pub(crate) async fn watch_for_jumps(jumps: watch::Sender<u64>) {
    const EVERY: Duration = Duration::from_secs(1);
    const NOTICEABLE: Duration = Duration::from_millis(50);
    let suspended = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let awake =
            Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
        Duration::from_nanos(boottime().as_nanos()).saturating_sub(awake)
    };
    let mut before = suspended();
    loop {
        tokio::time::sleep(EVERY).await;
        let now = suspended();
        if now.abs_diff(before) > NOTICEABLE {
            before = now;
            jumps.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward_and_sleeps_without_a_runtime() {
        let clock = BootClock::new(Keeper::global().unwrap());
        let start = clock.now();
        let nap = Duration::from_millis(20);
        futures_util::future::FutureExt::now_or_never(clock.sleep_until(start + nap));
        let waker = std::thread::spawn({
            let sleep = clock.sleep_until(start + nap);
            move || Keeper::global().unwrap().block_on(sleep)
        });
        waker.join().unwrap();
        assert!(clock.now() >= start + nap);
    }
}
