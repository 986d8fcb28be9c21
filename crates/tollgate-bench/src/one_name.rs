//! Clients that all want one lock: how fast it changes hands, and how fairly.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::task::JoinSet;

use crate::contender::{Client, Contender, Failure};
use crate::drain::drain;
use crate::report::{Fairness, Latencies, Measured};
use crate::stopwatch::Stopwatch;
use crate::workload::Round;

/// What those who get in see of those before.
struct Gate {
    last: Mutex<Last>,
}

struct Last {
    /// Who was in last, and since when it has been leaving.
    left: Option<(usize, Instant)>,
    grants: Vec<u64>,
    same_again: u64,
    handed_over: Latencies,
}

impl Last {
    /// Of so many clients, none of whom was in yet.
    fn new(clients: usize) -> Self {
        Self { left: None, grants: vec![0; clients], same_again: 0, handed_over: Latencies::new() }
    }
}

impl Gate {
    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `client` is in.
    fn enter(&self, client: usize) {
        let now = Instant::now();
        let mut last = self.last();
        last.grants[client] += 1;
        if let Some((before, since)) = last.left.take() {
            last.same_again += u64::from(before == client);
            last.handed_over.record(now.saturating_duration_since(since));
        }
    }

    /// `client` is about to leave.
    fn leave(&self, client: usize) {
        self.last().left = Some((client, Instant::now()));
    }
}

/// `count` clients, each with a connection of its own, take and release one lock.
pub(crate) async fn run(
    contender: &Arc<dyn Contender>,
    round: Round<'_>,
    count: usize,
) -> Result<Measured, Failure> {
    let gate = Arc::new(Gate { last: Mutex::new(Last::new(count)) });
    let stopwatch = Stopwatch::new(round.meter);
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(contender.client().await?);
    }
    let mut tasks = JoinSet::new();
    let running = stopwatch.start();
    for (number, client) in clients.into_iter().enumerate() {
        let until = running.since() + round.time;
        tasks.spawn(passages(gate.clone(), client, number, round.prefix.to_owned(), until));
    }
    tokio::time::sleep_until((running.since() + round.time).into()).await;
    // What comes later does not count: those who poll may be at it for long.
    let last = std::mem::replace(&mut *gate.last(), Last::new(count));
    let spent = running.stop();
    drain(tasks).await?;
    let fairness = Fairness::of(&last.grants, last.same_again);
    Ok(Measured::cycles(last.handed_over, spent).with_fairness(fairness))
}

async fn passages(
    gate: Arc<Gate>,
    client: Arc<dyn Client>,
    number: usize,
    name: String,
    until: Instant,
) -> Result<(), Failure> {
    while Instant::now() < until {
        let held = client.lock(&name).await?;
        gate.enter(number);
        gate.leave(number);
        held.unlock().await?;
    }
    Ok(())
}
