//! When the machine stood still: its processors or its disk kept every program waiting.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What counts as standing still: a good part of the shortest lease that a test keeps alive. Six engines on one disk often keep
/// each other waiting for a few hundred milliseconds, which tests have to stand.
const NOTABLE: Duration = Duration::from_millis(700);
/// How often the processors are looked at.
const SLEEP: Duration = Duration::from_millis(20);
/// How often the disk is asked to keep a page.
const WRITE_EVERY: Duration = Duration::from_millis(250);

/// The moments at which the machine stood still, while this lives.
pub(crate) struct Stalls {
    found: Arc<Mutex<Vec<Stall>>>,
    over: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
struct Stall {
    began: Instant,
    took: Duration,
}

impl Stalls {
    /// Watches the processors, and the disk that `folder` is on.
    pub(crate) fn watch(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join(format!("stall-{}", std::process::id()));
        let file = File::create(&path)?;
        std::fs::remove_file(&path)?;
        let (found, over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let sleep = || {
            std::thread::sleep(SLEEP);
            SLEEP
        };
        let mut written = Instant::now();
        let write = move || {
            std::thread::sleep(WRITE_EVERY.saturating_sub(written.elapsed()));
            written = Instant::now();
            // A disk that is full is no slower.
            let _ = file.write_at(&[0; 4096], 0).and_then(|_| file.sync_data());
            WRITE_EVERY
        };
        let watchers = vec![watcher(&found, &over, sleep), watcher(&found, &over, write)];
        Ok(Self { found, over, watchers })
    }

    /// How often the machine stood still, and for how long at most.
    pub(crate) fn summary(&self) -> Option<(usize, Duration)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = found.iter().map(|stall| stall.took).max()?;
        Some((found.len(), longest))
    }

    /// The longest time between two moments in which the machine stood still, if it did.
    pub(crate) fn longest_between(&self, from: Instant, to: Instant) -> Option<Duration> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        longest_between(&found, from, to)
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for watcher in self.watchers.drain(..) {
            let _ = watcher.join();
        }
    }
}

/// Does `work` again and again, which says how long it should have taken, and notes when it took much longer.
fn watcher(
    found: &Arc<Mutex<Vec<Stall>>>,
    over: &Arc<AtomicBool>,
    mut work: impl FnMut() -> Duration + Send + 'static,
) -> JoinHandle<()> {
    let (found, over) = (found.clone(), over.clone());
    std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let usual = work();
            let took = began.elapsed().saturating_sub(usual);
            if took >= NOTABLE {
                found.lock().unwrap_or_else(PoisonError::into_inner).push(Stall { began, took });
            }
        }
    })
}

fn longest_between(found: &[Stall], from: Instant, to: Instant) -> Option<Duration> {
    let meanwhile = found.iter().filter(|stall| stall.began < to && stall.began + stall.took > from);
    meanwhile.map(|stall| stall.took).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_what_ran_meanwhile() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let stall = |began, took| Stall { began: at(began), took: Duration::from_millis(took) };
        let found = [stall(1000, 300), stall(5000, 900)];
        assert_eq!(longest_between(&found, at(0), at(900)), None);
        assert_eq!(longest_between(&found, at(1200), at(2000)), Some(found[0].took));
        assert_eq!(longest_between(&found, at(0), at(9000)), Some(found[1].took));
    }

    #[test]
    fn slow_work_is_a_stall_and_usual_work_is_none() {
        let (found, over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut slept = [NOTABLE * 2, Duration::ZERO].into_iter();
        let ends = over.clone();
        let work = move || {
            match slept.next() {
                Some(pause) => std::thread::sleep(pause),
                None => ends.store(true, Ordering::Relaxed),
            }
            Duration::ZERO
        };
        watcher(&found, &over, work).join().unwrap();
        let found = found.lock().unwrap();
        assert!(found.iter().any(|stall| stall.took >= NOTABLE * 2), "{}", found.len());
    }
}
