//! A fake in a user's own tests: `cargo test --example fake`, or `cargo run --example fake` to see it run.
//!
//! `memory:NAME` is an engine of this process alone, with everything the others have: a queue, tokens, expiry,
//! an operator who breaks locks. Each test takes a name of its own.

use std::time::Duration;

use tollgate::{ErrorKind, Locks, Result};

/// The code under test: it charges a customer, unless somebody else does.
async fn charge(locks: &Locks, customer: &str, book: &mut Vec<u64>) -> Result<bool> {
    let Some(guard) = locks.lock(format!("customers/{customer}")).try_acquire().await? else {
        return Ok(false);
    };
    book.push(guard.fence()?.into());
    guard.release().await?;
    Ok(true)
}

async fn nobody_is_charged_twice_at_once() -> Result<()> {
    let locks = tollgate::connect("memory:charged-twice").await?;
    let mut book = Vec::new();
    let somebody_else = locks.lock("customers/7").acquire().await?;
    assert!(!charge(&locks, "7", &mut book).await?);
    assert!(book.is_empty());
    somebody_else.release().await?;
    assert!(charge(&locks, "7", &mut book).await?);
    assert_eq!(book.len(), 1);
    Ok(())
}

async fn a_lost_lock_stops_the_work() -> Result<()> {
    let locks = tollgate::connect("memory:lost-lock").await?;
    let guard = locks.lock("customers/7").ttl(Duration::from_secs(1)).acquire().await?;
    locks.revoke("customers/7", guard.token()).await?;
    guard.lost().await;
    assert_eq!(guard.fence().expect_err("it was broken").kind(), ErrorKind::Lost);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    nobody_is_charged_twice_at_once().await?;
    a_lost_lock_stops_the_work().await?;
    println!("both tests passed");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn nobody_is_charged_twice_at_once() {
        super::nobody_is_charged_twice_at_once().await.unwrap();
    }

    #[tokio::test]
    async fn a_lost_lock_stops_the_work() {
        super::a_lost_lock_stops_the_work().await.unwrap();
    }
}
