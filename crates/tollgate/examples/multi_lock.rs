//! Several locks, all or nothing, in an order that cannot deadlock: `cargo run --example multi_lock [URL]`.

use std::time::Duration;

use tollgate::{Locks, Result};

async fn transfer(locks: Locks, from: &str, to: &str) -> Result<()> {
    let both = locks.lock_all([from, to]).wait(Duration::from_secs(10)).acquire().await?;
    println!("moving from {from} to {to}");
    both.check()?;
    both.release().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tollgate::connect(&url).await?;
    // Named in opposite orders, they would wait for each other for ever if they were taken as written.
    for _ in 0..20 {
        tokio::try_join!(
            transfer(locks.clone(), "accounts/7", "accounts/9"),
            transfer(locks.clone(), "accounts/9", "accounts/7"),
        )?;
    }
    println!("nobody waited for ever");
    locks.close().await;
    Ok(())
}
