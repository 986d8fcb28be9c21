//! A clock that a test can make jump.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tollgate_core::{BootClock, BoxFuture, Clock, Keeper, Moment};

/// The boot clock, and as much more as the test has made it jump: what a process sees after a suspend.
#[derive(Debug, Clone)]
pub struct JumpingClock {
    real: BootClock,
    ahead: Arc<AtomicU64>,
    jumped: watch::Sender<()>,
}

impl JumpingClock {
    /// A clock that has not jumped yet.
    pub fn new() -> Self {
        let keeper = Keeper::global().expect("a test can start a thread");
        Self { real: BootClock::new(keeper), ahead: Arc::default(), jumped: watch::Sender::new(()) }
    }

    /// Moves the clock ahead at once. Sleepers notice, as they do some time after a real suspend.
    pub fn jump(&self, by: Duration) {
        self.jump_unnoticed(by);
        self.jumped.send_replace(());
    }

    /// Moves the clock ahead without waking anybody: what counts then is what is read at the next use.
    pub fn jump_unnoticed(&self, by: Duration) {
        self.ahead.fetch_add(
            u64::try_from(by.as_nanos()).expect("a test jumps less than 584 years"),
            Ordering::AcqRel,
        );
    }
}

impl Default for JumpingClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Moment {
        self.real.now() + Duration::from_nanos(self.ahead.load(Ordering::Acquire))
    }

    fn sleep_until(&self, when: Moment) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let mut jumps = clock.jumped.subscribe();
            loop {
                let left = when.since(clock.now());
                if left.is_zero() {
                    return;
                }
                tokio::select! {
                    () = clock.real.sleep_until(clock.real.now() + left) => {}
                    _ = jumps.changed() => {}
                }
            }
        })
    }
}
