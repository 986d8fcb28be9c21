//! The keeper: one thread with a runtime of its own per process.
//!
//! Renewals, background releases and withdrawals, and timers run here, so that a caller who blocks its
//! executor loses no lock, and a guard can be dropped where there is no runtime at all.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::watch_for_jumps;
use crate::error::{Error, ErrorKind, Result};

/// A handle to the keeper's runtime. Cloning is cheap.
///
/// Backends open the connections that renewals use from tasks spawned here: a driver's task on the
/// caller's blocked executor renews nothing. Nothing that runs here may block.
#[derive(Debug, Clone)]
pub struct Keeper {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    jumps: watch::Receiver<u64>,
}

/// A thread that waits for a future.
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Keeper {
    /// The process's keeper, started at the first call. It lives as long as the process.
    pub fn global() -> Result<Self> {
        static KEEPER: std::sync::Mutex<Option<Keeper>> = std::sync::Mutex::new(None);
        let mut keeper = KEEPER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(keeper) = &*keeper {
            return Ok(keeper.clone());
        }
        let started = Self::start().map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                "the keeper thread cannot be started; is the limit on threads reached?",
            )
            .caused_by(error)
        })?;
        Ok(keeper.insert(started).clone())
    }

    fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (jumped, jumps) = watch::channel(0);
        let handle = runtime.handle().clone();
        let (hand_over, take_over) = mpsc::channel::<Runtime>();
        let serve = move || {
            if let Ok(runtime) = take_over.recv() {
                runtime.block_on(watch_for_jumps(jumped));
            }
        };
        let thread = std::thread::Builder::new().name("tollgate-keeper".to_owned()).spawn(serve);
        match thread.and_then(|_| start_worker(&handle)) {
            Ok(()) => {
                // The thread waits for it.
                let _ = hand_over.send(runtime);
                Ok(Self { inner: Arc::new(Inner { runtime: handle, jumps }) })
            }
            Err(error) => {
                // To drop it would block, and a caller's own runtime forbids that.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Runs `future` on the keeper's thread.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.inner.runtime.spawn(future)
    }

    /// Runs `work`, which may block, on a thread beside the keeper's, within the span of whoever asks for it.
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let asked_by = tracing::Span::current();
        self.inner.runtime.spawn_blocking(move || asked_by.in_scope(work))
    }

    /// Waits on the current thread for `future`, whose timers and connections are the keeper's.
    ///
    /// Works on any thread but the keeper's own, also inside another runtime, whose executor it blocks: nothing
    /// that `future` opens here needs that executor to go on.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _inside = self.inner.runtime.enter();
        let sleeper = Arc::new(Sleeper { thread: std::thread::current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(sleeper.clone());
        let mut context = Context::from_waker(&waker);
        // Inside a task of another runtime tokio would count what is done here against that task's share, and
        // never give it more: nobody returns to that runtime meanwhile.
        let mut future = std::pin::pin!(tokio::task::unconstrained(future));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            // Others may unpark this thread, too.
            while !sleeper.woken.swap(false, Ordering::Acquire) {
                std::thread::park();
            }
        }
    }

    /// Sleeps on the keeper's timer, whatever executor polls it.
    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        let _inside = self.inner.runtime.enter();
        tokio::time::sleep(duration)
    }

    /// Changes when timers must be looked at again because the machine was suspended.
    pub(crate) fn jumps(&self) -> watch::Receiver<u64> {
        self.inner.jumps.clone()
    }
}

/// Starts the first thread for work that may block: where none can be had, tokio panics instead of saying so.
fn start_worker(runtime: &Handle) -> std::io::Result<()> {
    let spare = std::thread::Builder::new().spawn(|| ())?;
    // It does nothing, so nothing can have gone wrong in it.
    let _ = spare.join();
    let started = std::panic::catch_unwind(AssertUnwindSafe(|| drop(runtime.spawn_blocking(|| ()))));
    started.map_err(|_| std::io::Error::from(std::io::ErrorKind::WouldBlock))
}
