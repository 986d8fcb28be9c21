//! Work that ends when its lock is lost: `cargo run --example cancel_on_loss [URL]`.

use std::time::Duration;

use tollgate::{ErrorKind, Revocation};

#[tokio::main]
async fn main() -> tollgate::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tollgate::connect(&url).await?;
    let (started, start) = tokio::sync::oneshot::channel();
    let work = locks.lock("report").ttl(Duration::from_secs(2)).run(async |lease| {
        println!("working under token {}", lease.token());
        started.send(lease.token()).expect("somebody listens");
        std::future::pending::<()>().await;
    });
    let operator = async {
        let token = start.await.expect("the work starts");
        let broken = locks.revoke("report", token).await?;
        // Where it cannot be forced, the holder hears of it and leaves.
        assert!(matches!(broken, Revocation::Revoked | Revocation::Pending));
        Ok::<_, tollgate::Error>(())
    };
    let (outcome, operator) = tokio::join!(work, operator);
    operator?;
    let error = outcome.expect_err("the lock was broken");
    assert_eq!(error.kind(), ErrorKind::Lost);
    println!("the work was cancelled: {error}");
    locks.close().await;
    Ok(())
}
