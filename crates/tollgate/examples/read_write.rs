//! Many readers or one writer, and no writer starves: `cargo run --example read_write [URL]`.

use tollgate::{Guard, Locks, Result};

async fn read(locks: &Locks) -> Result<Guard> {
    locks.lock("catalogue").shared().acquire().await
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tollgate::connect(&url).await?;
    let (one, two) = (read(&locks).await?, read(&locks).await?);
    println!("two read at once");
    assert!(locks.lock("catalogue").try_acquire().await?.is_none());
    println!("a writer has to wait");

    let writer = tokio::spawn(locks.lock("catalogue").acquire());
    while locks.inspect("catalogue").await?.is_none_or(|state| state.waiters.is_empty()) {
        tokio::task::yield_now().await;
    }
    let late = locks.lock("catalogue").shared().try_acquire().await?;
    assert!(late.is_none());
    println!("a reader who comes later stands behind the writer");

    one.release().await?;
    two.release().await?;
    let writer = writer.await.expect("the writer does not panic")?;
    println!("the writer is in, with token {}", writer.fence()?);
    writer.release().await?;
    locks.close().await;
    Ok(())
}
