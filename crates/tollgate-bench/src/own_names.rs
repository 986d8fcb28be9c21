//! Locks that nobody else wants: what taking and giving back costs by itself.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::contender::{Client, Contender, Failure};
use crate::report::{Latencies, Measured};
use crate::stopwatch::Stopwatch;
use crate::workload::Round;

/// How a task chooses the next name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Names {
    /// Always the same.
    One,
    /// So many, in turn.
    InTurn(usize),
    /// A new one every time.
    New,
}

impl Names {
    fn name(self, prefix: &str, cycle: usize) -> String {
        match self {
            Self::One => prefix.to_owned(),
            Self::InTurn(names) => format!("{prefix}/{}", cycle % names),
            Self::New => format!("{prefix}/{cycle}"),
        }
    }
}

/// `count` tasks take and release a lock of their own, each through a connection of its own if `apart`.
pub(crate) async fn run(
    contender: &Arc<dyn Contender>,
    round: Round<'_>,
    count: usize,
    apart: bool,
    names: Names,
) -> Result<Measured, Failure> {
    let stopwatch = Stopwatch::new(round.meter);
    let mut clients = vec![contender.client().await?];
    while apart && clients.len() < count {
        clients.push(contender.client().await?);
    }
    let mut tasks = JoinSet::new();
    let running = stopwatch.start();
    for number in 0..count {
        let client = clients[number % clients.len()].clone();
        let prefix = format!("{}/{number}", round.prefix);
        tasks.spawn(cycles(client, prefix, names, running.since() + round.time));
    }
    let mut latencies = Latencies::new();
    while let Some(own) = tasks.join_next().await {
        latencies.add(own??);
    }
    Ok(Measured::cycles(latencies, running.stop()))
}

async fn cycles(
    client: Arc<dyn Client>,
    prefix: String,
    names: Names,
    until: Instant,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    for cycle in 0.. {
        let name = names.name(&prefix, cycle);
        let started = Instant::now();
        if started >= until {
            break;
        }
        client.lock(&name).await?.unlock().await?;
        latencies.record(started.elapsed());
    }
    Ok(latencies)
}
