//! One at a time: `cargo run --example mutex [URL]`.

use std::time::Duration;

#[tokio::main]
async fn main() -> tollgate::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tollgate::connect(&url).await?;
    let workers: Vec<_> = (1..=3)
        .map(|worker| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let guard = locks.lock("orders/42").wait(Duration::from_secs(10)).acquire().await?;
                println!("worker {worker} is in, with token {}", guard.token());
                tokio::time::sleep(Duration::from_millis(10)).await;
                guard.release().await
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no worker panics")?;
    }
    locks.close().await;
    Ok(())
}
