//! A lock that one process takes and another goes on with: `cargo run --example adopt [URL]`.
//!
//! Where grants are leases they travel as JSON. Where a lock lives and dies with its process (`file:`), it hangs
//! on an open file that a child can inherit; here the child gets it as its standard input.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use tollgate::capabilities::Adopt;
use tollgate::{Grant, Guard, Locks, Result};

/// Tells the child which grant is to be taken over.
const GRANT: &str = "EXAMPLE_GRANT";

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "file:".to_owned());
    let locks = tollgate::connect(&url).await?;
    match std::env::var(GRANT) {
        Ok(json) => child(&locks, &json).await?,
        Err(_) => parent(&locks, &url).await?,
    }
    locks.close().await;
    Ok(())
}

async fn parent(locks: &Locks, url: &str) -> Result<()> {
    let mut child = Command::new(std::env::current_exe().expect("this program has a path"));
    child.arg(url);
    let grant = if locks.capabilities().adopt == Adopt::Never {
        let (grant, lock) = locks.lock("import").acquire().await?.bequeath()?;
        child.stdin(Stdio::from(lock));
        grant
    } else {
        locks.lock("import").no_renew().acquire().await?.into_grant()?
    };
    println!("the parent took token {}", grant.token);
    child.env(GRANT, serde_json::to_string(&grant).expect("a grant is JSON"));
    let mut child = child.spawn().expect("the child starts");
    assert!(child.wait().expect("the child ends").success());
    assert!(locks.lock("import").try_acquire().await?.is_some());
    println!("the child has released it");
    Ok(())
}

async fn child(locks: &Locks, json: &str) -> Result<()> {
    let grant: Grant = serde_json::from_str(json).expect("the parent wrote it");
    let guard: Guard = if locks.capabilities().adopt == Adopt::Never {
        let lock = std::io::stdin().as_fd().try_clone_to_owned().expect("it can be copied");
        locks.inherit(grant, lock).await?
    } else {
        locks.adopt(grant).await?
    };
    assert!(locks.lock("import").try_acquire().await?.is_none());
    println!("the child goes on with token {}", guard.fence()?);
    guard.release().await?;
    Ok(())
}
