//! Data in Redis that refuses a holder who comes too late: `cargo run --example fenced_redis [URL]`.

use redis::AsyncCommands;
use tollgate::ErrorKind;
use tollgate::redis::{FencedScript, RedisFence};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let locks = tollgate::connect(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let total = RedisFence::around("total")?;

    // A holder that believes it has the lock, while its time is over and another one is in.
    let late = locks.lock("total").acquire().await?;
    let stale = late.fence()?;
    late.release().await?;

    let guard = locks.lock("total").acquire().await?;
    // Before the first read: from here on nobody before us can write.
    total.admit(&mut redis, guard.fence()?).await?;
    let seen: Option<i64> = redis.get("total").await?;
    total.set(&mut redis, "total", seen.unwrap_or(0) + 1, guard.fence()?).await?;
    let add = FencedScript::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let sum: i64 = total.run(&mut redis, add.key("total").arg(3), guard.fence()?).await?;
    println!("the total is {sum}");

    let error = total.set(&mut redis, "total", 0, stale).await.expect_err("it comes too late");
    assert_eq!(error.kind(), ErrorKind::Lost);
    println!("refused: {error}");
    guard.release().await?;
    locks.close().await;
    Ok(())
}
