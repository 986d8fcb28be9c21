//! A queue of tasks for one lock: whether a hand-over costs more the more there are who wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::contender::{Client, Contender, Failure};
use crate::drain::drain;
use crate::report::{Latencies, Measured};
use crate::stopwatch::Stopwatch;
use crate::workload::Round;

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
    round: Round<'_>,
    waiters: usize,
) -> Result<Measured, Failure> {
    let stopwatch = Stopwatch::new(round.meter);
    let apart = if contender.holds_many() { CONNECTIONS.min(waiters + 1) } else { waiters + 1 };
    let mut clients = Vec::new();
    for _ in 0..apart {
        clients.push(contender.client().await?);
    }
    let passages = Arc::new(Passages::default());
    let asked = Instant::now();
    let first = clients[0].lock(round.prefix).await?;
    let settling = settling(waiters, asked.elapsed());
    let mut tasks = JoinSet::new();
    for number in 0..=waiters {
        let client = clients[number % clients.len()].clone();
        tasks.spawn(pass(passages.clone(), client, round.prefix.to_owned()));
    }
    // Everybody has to be in the queue before the first one leaves; nobody can be asked for it everywhere.
    tokio::time::sleep(settling).await;
    first.unlock().await?;
    passages.counting.store(true, Ordering::Relaxed);
    let running = stopwatch.start();
    tokio::time::sleep(round.time).await;
    let number = passages.number.load(Ordering::Relaxed);
    let spent = running.stop();
    passages.over.store(true, Ordering::Relaxed);
    drain(tasks).await?;
    Ok(Measured::hand_overs(number, spent, Latencies::new()))
}

/// How long `waiters` need to queue, where one lock took so long: at most as long as one after the other.
fn settling(waiters: usize, one_took: Duration) -> Duration {
    let each = one_took.clamp(Duration::from_millis(1), Duration::from_millis(5));
    Duration::from_millis(100) + each * u32::try_from(waiters).unwrap_or(u32::MAX)
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
