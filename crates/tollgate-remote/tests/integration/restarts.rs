//! The server ends, cleanly or not, and comes back on its file.

use tollgate_core::{GuardState, Release};
use tollgate_embedded::durable::Durability;

use crate::support::Server;
use crate::{SECOND, locks, name, until};

#[tokio::test]
async fn a_holder_keeps_its_lock_when_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Sync, 0);
    let address = server.address();
    let (holder, other) = (locks(address).await, locks(address).await);
    let guard = holder.lock("kept").ttl(SECOND * 6).acquire().await.unwrap();
    server.kill();
    assert!(other.lock("kept").try_acquire().await.is_err(), "no server answers");

    let server = Server::start(folder.path(), Durability::Sync, address.port());
    let deadline = guard.deadline();
    until("the grant is renewed", async || guard.deadline() > deadline).await;
    assert_eq!(guard.state(), GuardState::Held);
    assert!(other.lock("kept").try_acquire().await.unwrap().is_none(), "the lock was granted twice");
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = other.lock("kept").acquire().await.unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
    server.stop();
}

#[tokio::test]
async fn after_a_crash_in_grace_nothing_is_granted_until_every_lock_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Grace, 0);
    let address = server.address();
    let (holder, other) = (locks(address).await, locks(address).await);
    let guard = holder.lock("held").ttl(SECOND * 2).no_renew().acquire().await.unwrap();
    let deadline = guard.deadline().unwrap();
    server.kill();
    let server = Server::start(folder.path(), Durability::Grace, address.port());
    let error = other.lock("held").try_acquire().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("grants nothing"), "{error}");
    until("the server grants again", async || match other.lock("held").try_acquire().await {
        Ok(taken) => taken.is_some(),
        Err(_) => false,
    })
    .await;
    assert!(crate::clock().now() >= deadline, "the lock was granted before its holder's deadline");
    server.stop();
}

#[tokio::test]
async fn a_waiter_waits_on_when_the_server_is_restarted() {
    for is_clean in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), Durability::Sync, 0);
        let address = server.address();
        let (holder, waiter) = (locks(address).await, locks(address).await);
        let guard = holder.lock("a").ttl(SECOND * 30).acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.lock("a").acquire());
        let waiters = async |locks: &tollgate_core::Locks| match locks.inspect("a").await {
            Ok(Some(state)) => state.waiters.len(),
            _ => 0,
        };
        until("the claim waits", async || waiters(&holder).await == 1).await;
        if is_clean {
            server.stop()
        } else {
            server.kill()
        }
        let server = Server::start(folder.path(), Durability::Sync, address.port());
        until("the claim waits again", async || waiters(&holder).await == 1).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let next = waiting.await.unwrap().unwrap();
        assert_eq!(next.name(), &name("a"));
        next.release().await.unwrap();
        server.stop();
    }
}
