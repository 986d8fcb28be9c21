//! What an uncontended cycle costs beside a plain lock and a synced counter: `cargo run --release --example cycle [DIR]`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{Backend, BootClock, Claim, Keeper, LockName, Mode};
use tollgate_local::FileBackend;

type Failure = Box<dyn std::error::Error>;

const ROUNDS: u32 = 500;

fn main() -> Result<(), Failure> {
    let dir =
        std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("tollgate-cycle"), PathBuf::from);
    let keeper = Keeper::global()?;
    let backend = FileBackend::open(&dir, Arc::new(BootClock::new(keeper.clone())), keeper)?;
    let plain = dir.join("plain");
    let counter = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("plain.counter"))?;
    counter.write_all_at(&[0; 4096], 0)?;
    counter.sync_all()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("median of {ROUNDS} cycles, five times, in turns");
    for _ in 0..5 {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let start = Instant::now();
            lock_and_count(&plain, &counter, round)?;
            theirs.push(start.elapsed());
            let start = Instant::now();
            runtime.block_on(cycle(&backend))?;
            ours.push(start.elapsed());
        }
        let (theirs, ours) = (median(theirs), median(ours));
        println!(
            "plain {theirs:?}  tollgate {ours:?}  ratio {:.2}",
            ours.as_secs_f64() / theirs.as_secs_f64()
        );
    }
    runtime.block_on(backend.close());
    Ok(())
}

/// What a careful script does: lock a file, raise a number, wait for the disk, unlock.
fn lock_and_count(path: &Path, counter: &File, round: u32) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    counter.write_all_at(&round.to_le_bytes(), 0)?;
    counter.sync_data()?;
    Ok(file.unlock()?)
}

async fn cycle(backend: &FileBackend) -> Result<(), Failure> {
    let claim = Claim::new(LockName::new("cycle")?, Mode::Exclusive, Duration::from_secs(30));
    let grant = backend.acquire(&claim).await?;
    backend.release(&grant).await?;
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
