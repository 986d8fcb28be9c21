//! Those who wait behind readers and permits: they look without writing, and notice what nobody tells them.

use std::time::Duration;

use crate::support::{config, connection, locks};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tollgate_core::{Locks, OwnerId};
use tollgate_mysql::Dialect;
use tollgate_testkit::engines::{self, Config};

/// Long enough that nobody has to say within a test that it lives.
const TTL: Duration = Duration::from_secs(60);

async fn commits(root: &mut Conn) -> u64 {
    let told: Option<(String, u64)> = root.query_first("show global status like 'Com_commit'").await.unwrap();
    told.unwrap().1
}

async fn until_waiting(locks: &Locks, name: &str, many: usize) {
    while locks.inspect(name).await.unwrap().is_none_or(|state| state.waiters.len() < many) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn who_waits_behind_readers_writes_nothing() {
    for dialect in [Dialect::MariaDb, Dialect::MySql] {
        let engine = engines::private(&Config::mariadb()).unwrap();
        let mut config = config(engine.address());
        config.dialect = Some(dialect);
        let locks = locks(config).await;
        let mut root = connection(engine.address()).await;
        let mut readers = Vec::new();
        for _ in 0..2 {
            readers.push(locks.lock("a").shared().ttl(TTL).acquire().await.unwrap());
        }
        // One of them has died, and the other has not.
        let dead = "update tollgate_claims set expires = 1 order by ticket limit 1";
        root.query_drop(dead).await.unwrap();
        let writer = tokio::spawn(locks.lock("a").ttl(TTL).acquire());
        until_waiting(&locks, "a", 1).await;
        let behind = tokio::spawn(locks.lock("a").shared().ttl(TTL).acquire());
        until_waiting(&locks, "a", 2).await;
        let before = commits(&mut root).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let written = commits(&mut root).await - before;
        assert!(written <= 3, "{written} commits in a second");
        for reader in readers {
            let _ = reader.release().await;
        }
        writer.await.unwrap().unwrap().release().await.unwrap();
        behind.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A name, locks, and somebody who has others die.
async fn ground() -> (Locks, Conn, String) {
    let address = engines::shared(&Config::mariadb()).address();
    let name = format!("waiting/{}", OwnerId::random().to_hex());
    (locks(config(address)).await, connection(address).await, name)
}

async fn in_time<T>(waiting: tokio::task::JoinHandle<tollgate_core::Result<T>>) -> T {
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is its turn").unwrap().unwrap()
}

#[tokio::test]
async fn who_waits_behind_readers_that_died_gets_in() {
    let (locks, mut root, name) = ground().await;
    let readers = [
        locks.lock(&name).shared().ttl(TTL).acquire().await.unwrap(),
        locks.lock(&name).shared().ttl(TTL).acquire().await.unwrap(),
    ];
    let writer = tokio::spawn(locks.lock(&name).ttl(TTL).acquire());
    until_waiting(&locks, &name, 1).await;
    let dead = "update tollgate_claims set expires = 1 where name = ? and token is not null";
    root.exec_drop(dead, (&name,)).await.unwrap();
    in_time(writer).await.release().await.unwrap();
    drop(readers);
}

#[tokio::test]
async fn who_waits_behind_a_waiter_that_died_gets_in_to_the_readers() {
    let (locks, mut root, name) = ground().await;
    let reader = locks.lock(&name).shared().ttl(TTL).acquire().await.unwrap();
    let writer = tokio::spawn(locks.lock(&name).ttl(TTL).acquire());
    until_waiting(&locks, &name, 1).await;
    let behind = tokio::spawn(locks.lock(&name).shared().ttl(TTL).acquire());
    until_waiting(&locks, &name, 2).await;
    // As a process does that is killed.
    writer.abort();
    let dead = "update tollgate_claims set expires = 0 where name = ? and mode = 'x'";
    root.exec_drop(dead, (&name,)).await.unwrap();
    in_time(behind).await.release().await.unwrap();
    reader.release().await.unwrap();
}

#[tokio::test]
async fn who_waits_for_a_permit_gets_that_of_one_that_died() {
    let (locks, mut root, name) = ground().await;
    let permit = || locks.lock(&name).permit(2).ttl(TTL).acquire();
    let (first, second) = (permit().await.unwrap(), permit().await.unwrap());
    let third = tokio::spawn(permit());
    until_waiting(&locks, &name, 1).await;
    let dead = "update tollgate_claims set expires = 1 where name = ? order by ticket limit 1";
    root.exec_drop(dead, (&name,)).await.unwrap();
    in_time(third).await.release().await.unwrap();
    second.release().await.unwrap();
    drop(first);
}
