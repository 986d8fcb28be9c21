//! A lock that is given up when the work hangs, though the process lives on: `cargo run --example stall_after [URL]`.

use std::time::Duration;

use tollgate::LossCause;

const SILENCE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> tollgate::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tollgate::connect(&url).await?;
    let guard = locks.lock("import").stall_after(SILENCE).acquire().await?;
    for part in 1..=3 {
        tokio::time::sleep(SILENCE / 6).await;
        guard.progress();
        println!("part {part} is done");
    }
    // The renewals go on, but nobody reports progress any more.
    let cause = guard.lost().await;
    assert_eq!(cause, LossCause::Stalled);
    println!("lost: {cause}");
    drop(guard);
    // The next one gets in, though the first never let go.
    let next = locks.lock("import").wait(Duration::from_secs(10)).acquire().await?;
    println!("the next one is in, with token {}", next.token());
    next.release().await?;
    locks.close().await;
    Ok(())
}
