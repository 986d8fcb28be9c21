//! Many locks held at once: the memory each of them takes in the holder's process.

use std::sync::Arc;

use crate::contender::{Contender, Failure};
use crate::machine::{resident_bytes, room_for_files};
use crate::report::Measured;
use crate::workload::Round;

/// How many are taken first, so that what is there once for all is not counted.
const WARM_UP: usize = 100;

/// Takes `count` locks, or as many as this process may have files open, and keeps them all.
pub(crate) async fn run(
    contender: &Arc<dyn Contender>,
    round: Round<'_>,
    count: usize,
) -> Result<Measured, Failure> {
    let prefix = round.prefix;
    // A lock may need an open file, and others need some, too.
    let count = count.min(room_for_files()?.saturating_sub(WARM_UP + 200)).max(1);
    let client = contender.client().await?;
    let mut held = Vec::with_capacity(count + WARM_UP);
    for number in 0..WARM_UP {
        held.push(client.lock(&format!("{prefix}/warm-up/{number}")).await?);
    }
    let before = resident_bytes()?;
    for number in 0..count {
        held.push(client.lock(&format!("{prefix}/{number}")).await?);
    }
    let bytes = resident_bytes()?.saturating_sub(before) as f64 / count as f64;
    for lock in held {
        lock.unlock().await?;
    }
    Ok(Measured::footprint(bytes))
}
