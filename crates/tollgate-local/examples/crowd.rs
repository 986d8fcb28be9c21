//! What many processes that want one lock get: `cargo run --release --example crowd [PROCESSES [CYCLES [DIR]]]`.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{Backend, BootClock, Claim, Keeper, LockName, Mode};
use tollgate_local::FileBackend;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().unwrap_or_else(|| "50".to_owned());
    let cycles: u32 = arguments.next().unwrap_or_else(|| "40".to_owned()).parse()?;
    let default = std::env::temp_dir().join("tollgate-crowd").display().to_string();
    let dir = arguments.next().unwrap_or(default);
    if first == "member" {
        return member(&dir, cycles);
    }
    let processes: u32 = first.parse()?;
    let start = Instant::now();
    let members = (0..processes)
        .map(|_| Command::new(std::env::current_exe()?).args(["member", &cycles.to_string(), &dir]).spawn());
    let members = members.collect::<Result<Vec<_>, _>>()?;
    for mut member in members {
        assert!(member.wait()?.success(), "a member failed");
    }
    let (elapsed, total) = (start.elapsed(), processes * cycles);
    println!("{processes} processes, {total} grants in {elapsed:.2?}: {:.0?} a grant", elapsed / total);
    Ok(())
}

fn member(dir: &str, cycles: u32) -> Result<(), Failure> {
    let keeper = Keeper::global()?;
    let backend = FileBackend::open(dir, Arc::new(BootClock::new(keeper.clone())), keeper)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for _ in 0..cycles {
            let claim = Claim::new(LockName::new("crowd")?, Mode::Exclusive, Duration::from_secs(30));
            let grant = backend.acquire(&claim).await?;
            backend.release(&grant).await?;
        }
        backend.close().await;
        Ok(())
    })
}
