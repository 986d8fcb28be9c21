//! One leads, and the next one takes over: `cargo run --example election [URL]`.

use std::pin::pin;

use futures_util::StreamExt;
use tollgate::Locks;

/// Leads once, for as long as there is something to do.
async fn candidate(locks: Locks, host: &'static str) -> tollgate::Result<()> {
    locks
        .election("scheduler")
        .lead(host, async |work| println!("{host} leads, epoch {}", work.token()))
        .await
}

#[tokio::main]
async fn main() -> tollgate::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tollgate::connect(&url).await?;
    let election = locks.election("scheduler");
    let leadership = election.campaign("host-1").await?;
    let next = tokio::spawn(candidate(locks.clone(), "host-2"));
    let mut leaders = pin!(election.observe());
    if let Some(leader) = leaders.next().await {
        println!("everybody sees {}", leader?.value);
    }
    // What it does as the leader has ended, so the next one may begin.
    leadership.resign().await?;
    next.await.expect("no candidate panics")?;
    locks.close().await;
    Ok(())
}
