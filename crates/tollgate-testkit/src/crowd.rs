//! A crowd that takes one lock again and again, whatever happens to the engine meanwhile, and what it saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tollgate_core::Locks;

use crate::subject::{PATIENCE, eventually};

/// Tasks that take a lock in turns.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<Vec<u64>>>,
}

impl Crowd {
    /// So many tasks on one lock, with these clients in turns.
    pub fn start(clients: &[Locks], tasks: usize, ttl: Duration) -> Self {
        let (stop, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let inside = Arc::<AtomicUsize>::default();
        let tasks = (0..tasks).map(|task| {
            let locks = clients[task % clients.len()].clone();
            let (stop, rounds, inside) = (stop.clone(), rounds.clone(), inside.clone());
            tokio::spawn(async move {
                let mut tokens = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    // An engine without a leader says that it does not know.
                    let Ok(guard) = locks.lock("crowded").ttl(ttl).acquire().await else {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    };
                    if guard.check().is_err() {
                        continue;
                    }
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders overlapped");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    tokens.push(guard.token().get());
                    rounds.fetch_add(1, Ordering::SeqCst);
                    let _ = guard.release().await;
                }
                tokens
            })
        });
        Self { tasks: tasks.collect(), stop, rounds }
    }

    /// Waits until so many more have been in.
    pub async fn goes_on(&self, rounds: usize) -> Duration {
        let (began, so_far) = (Instant::now(), self.rounds.load(Ordering::SeqCst));
        let more = || async { (self.rounds.load(Ordering::SeqCst) >= so_far + rounds).then_some(()) };
        eventually("the crowd goes on", more).await;
        began.elapsed()
    }

    /// How many were in. Every token that was given is another.
    pub async fn end(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for task in self.tasks {
            let ended = tokio::time::timeout(PATIENCE, task).await.expect("the crowd ends");
            let tokens = ended.expect("no two holders overlapped");
            assert!(tokens.is_sorted(), "tokens fell");
            all.extend(tokens);
        }
        let many = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), many, "a token was given twice");
        many
    }
}

/// So many tasks of one client pass through a lock once, each by itself and with a token of its own.
pub async fn pass_one_by_one(locks: &Locks, name: &str, tasks: usize) {
    let inside = Arc::<AtomicUsize>::default();
    let passing: Vec<_> = (0..tasks)
        .map(|_| {
            let (request, inside) = (locks.lock(name), inside.clone());
            tokio::spawn(async move {
                let guard = request.acquire().await.expect("the waiter is granted the lock");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders overlapped");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let token = guard.token();
                guard.release().await.expect("the lock is released");
                token
            })
        })
        .collect();
    let mut tokens = Vec::new();
    for task in passing {
        tokens.push(task.await.expect("no two holders overlapped"));
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), tasks, "a token was given twice");
}
