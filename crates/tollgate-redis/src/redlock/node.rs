//! One node: where it is, and whether it is worth asking.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Client, ConnectionInfo};
use tollgate_core::{ErrorKind, Result};

use crate::error::of_connect;
use crate::redlock::trouble::Trouble;

/// A try that failed so recently stands for the next one.
const FRESH: Duration = Duration::from_millis(100);

/// One node. One that failed is set aside: nobody waits for it until somebody in the background has reached it again.
pub(crate) struct Node {
    /// HOST:PORT, for those who read.
    pub(crate) label: String,
    pub(crate) client: Client,
    aside: AtomicBool,
    /// Why it was of no use the last time, and when that was.
    last: Mutex<Option<(Trouble, Instant)>>,
    /// Under which id it ran when it was last reached.
    run_id: Mutex<String>,
}

impl Node {
    pub(crate) fn new(info: ConnectionInfo) -> Result<Self> {
        let label = info.addr().to_string();
        let client = Client::open(info).map_err(of_connect)?;
        let (last, run_id) = (Mutex::default(), Mutex::default());
        Ok(Self { label, client, aside: AtomicBool::new(false), last, run_id })
    }

    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Acquire)
    }

    /// Sets it aside. Answers whether it was not before.
    pub(crate) fn set_aside(&self, trouble: Trouble) -> bool {
        self.note(trouble);
        !self.aside.swap(true, Ordering::AcqRel)
    }

    /// It answers again.
    pub(crate) fn bring_back(&self) {
        *self.last() = None;
        self.aside.store(false, Ordering::Release);
    }

    pub(crate) fn note(&self, trouble: Trouble) {
        *self.last() = Some((trouble, Instant::now()));
    }

    /// Whether it failed so recently that another try would only repeat it.
    pub(crate) fn failed_just_now(&self) -> bool {
        self.last().as_ref().is_some_and(|(_, when)| when.elapsed() < FRESH)
    }

    /// Why it was of no use the last time.
    pub(crate) fn trouble(&self) -> Trouble {
        let last = self.last().as_ref().map(|(trouble, _)| trouble.clone());
        last.unwrap_or_else(|| Trouble::new(ErrorKind::Unavailable, "it has not answered yet"))
    }

    pub(crate) fn run_id(&self) -> MutexGuard<'_, String> {
        self.run_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Option<(Trouble, Instant)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
