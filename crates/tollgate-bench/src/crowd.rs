//! A queue of tasks for one lock: whether a hand-over costs more the more there are who wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::contender::{Client, Contender, Failure};
use crate::machine::cpu_seconds;
use crate::report::{Latencies, Measured};

/// Connections that a crowd shares: a thousand tasks are one program, not a thousand.
const CONNECTIONS: usize = 16;

/// The passages of a crowd. They count once everybody waits.
#[derive(Default)]
struct Passages {
    counting: AtomicBool,
    over: AtomicBool,
    number: AtomicU64,
}

/// One task holds while `waiters` others wait, and it goes round until `time` is over.
pub(crate) async fn run(
    contender: &Arc<dyn Contender>,
    prefix: &str,
    waiters: usize,
    time: Duration,
) -> Result<Measured, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS.min(waiters + 1) {
        clients.push(contender.client().await?);
    }
    let passages = Arc::new(Passages::default());
    let first = clients[0].lock(prefix).await?;
    let mut tasks = JoinSet::new();
    for number in 0..=waiters {
        let client = clients[number % clients.len()].clone();
        tasks.spawn(pass(passages.clone(), client, prefix.to_owned()));
    }
    // Everybody has to be in the queue before the first one leaves; nobody can be asked for it everywhere.
    tokio::time::sleep(Duration::from_millis(100) + Duration::from_millis(waiters as u64)).await;
    first.unlock().await?;
    passages.counting.store(true, Ordering::Relaxed);
    let (spent, started) = (cpu_seconds(), Instant::now());
    tokio::time::sleep(time).await;
    let number = passages.number.load(Ordering::Relaxed);
    let (elapsed, spent) = (started.elapsed(), cpu_seconds() - spent);
    passages.over.store(true, Ordering::Relaxed);
    while let Some(passed) = tasks.join_next().await {
        passed??;
    }
    Ok(Measured::hand_overs(number, elapsed, spent, Latencies::new()))
}

async fn pass(passages: Arc<Passages>, client: Arc<dyn Client>, name: String) -> Result<(), Failure> {
    while !passages.over.load(Ordering::Relaxed) {
        let held = client.lock(&name).await?;
        if passages.counting.load(Ordering::Relaxed) {
            passages.number.fetch_add(1, Ordering::Relaxed);
        }
        held.unlock().await?;
    }
    Ok(())
}
