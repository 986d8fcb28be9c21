//! At most two at a time: `cargo run --example semaphore [URL]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::main]
async fn main() -> tollgate::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tollgate::connect(&url).await?;
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let jobs: Vec<_> = (0..6)
        .map(|_| {
            let (locks, inside, most) = (locks.clone(), inside.clone(), most.clone());
            tokio::spawn(async move {
                // Everybody has to name the same limit.
                let permit = locks.lock("gpu").permit(2).acquire().await?;
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().await
            })
        })
        .collect();
    for job in jobs {
        job.await.expect("no job panics")?;
    }
    println!("six jobs ran, never more than {} at once", most.load(Ordering::SeqCst));
    locks.close().await;
    Ok(())
}
