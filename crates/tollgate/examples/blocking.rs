//! The same without async: `cargo run --example blocking [URL]`.

use std::time::Duration;

use tollgate::blocking;

fn main() -> tollgate::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = blocking::connect(&url)?;
    std::thread::scope(|scope| {
        for worker in 1..=3 {
            let locks = &locks;
            scope.spawn(move || -> tollgate::Result<()> {
                let guard = locks.lock("orders/42").wait(Duration::from_secs(10)).acquire()?;
                println!("worker {worker} is in, with token {}", guard.fence()?);
                guard.release()?;
                Ok(())
            });
        }
    });
    let rows = locks.lock("report").run(|lease| {
        lease.progress();
        17
    })?;
    println!("the report has {rows} rows");
    locks.close();
    Ok(())
}
