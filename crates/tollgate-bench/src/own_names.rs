//! Locks that nobody else wants: what taking and giving back costs by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::contender::{Client, Contender, Failure};
use crate::machine::cpu_seconds;
use crate::report::{Latencies, Measured};

/// `count` tasks take and release a lock of their own, each through a connection of its own if `apart`.
pub(crate) async fn run(
    contender: &Arc<dyn Contender>,
    prefix: &str,
    count: usize,
    apart: bool,
    time: Duration,
) -> Result<Measured, Failure> {
    let mut clients = vec![contender.client().await?];
    while apart && clients.len() < count {
        clients.push(contender.client().await?);
    }
    let mut tasks = JoinSet::new();
    let (spent, started) = (cpu_seconds(), Instant::now());
    for number in 0..count {
        let client = clients[number % clients.len()].clone();
        tasks.spawn(cycles(client, format!("{prefix}/{number}"), started + time));
    }
    let mut latencies = Latencies::new();
    while let Some(own) = tasks.join_next().await {
        latencies.add(own??);
    }
    let (elapsed, spent) = (started.elapsed(), cpu_seconds() - spent);
    Ok(Measured::cycles(latencies, elapsed, spent))
}

async fn cycles(client: Arc<dyn Client>, name: String, until: Instant) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    loop {
        let started = Instant::now();
        if started >= until {
            return Ok(latencies);
        }
        client.lock(&name).await?.unlock().await?;
        latencies.record(started.elapsed());
    }
}
