//! A transaction that finds a lock in use and goes on is in nobody's way: neither its holders nor those who wait notice it.

use std::time::Duration;

use crate::support::{config, connection, locks};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tollgate_core::{ErrorKind, Locks, OwnerId, Release};
use tollgate_mysql::{Dialect, MySqlTransactions};
use tollgate_testkit::engines::{self, Config};

const TTL: Duration = Duration::from_secs(2);

/// Locks, a connection whose transactions can wait, and somebody who looks into the tables.
struct Ground {
    locks: Locks,
    connection: Conn,
    root: Conn,
    within: MySqlTransactions,
    prefix: String,
    name: String,
}

async fn grounds() -> Vec<Ground> {
    let address = engines::shared(&Config::mariadb()).address();
    let mut grounds = Vec::new();
    for dialect in [Dialect::MariaDb, Dialect::MySql] {
        let mut config = config(address);
        config.dialect = Some(dialect);
        config.table_prefix = format!("beside_{dialect:?}_");
        let prefix = config.table_prefix.clone();
        let mut connection = connection(address).await;
        connection.query_drop("set session transaction isolation level read committed").await.unwrap();
        let mut root = crate::support::connection(address).await;
        root.query_drop("set session innodb_lock_wait_timeout = 1").await.unwrap();
        grounds.push(Ground {
            within: MySqlTransactions::with_table_prefix(&prefix).unwrap(),
            name: format!("orders/{}", OwnerId::random().to_hex()),
            locks: locks(config).await,
            connection,
            root,
            prefix,
        });
    }
    grounds
}

#[tokio::test]
async fn a_reader_is_renewed_and_leaves_beside_a_transaction_that_found_it() {
    for mut ground in grounds().await {
        let (locks, name) = (&ground.locks, &ground.name);
        let reader = locks.lock(name).shared().ttl(TTL).acquire().await.unwrap();
        let mut tx = ground.connection.start_transaction(TxOpts::default()).await.unwrap();
        assert_eq!(ground.within.try_lock_in_transaction(&mut tx, name).await.unwrap(), None);
        tokio::time::sleep(TTL * 2).await;
        reader.check().expect("it was renewed all the while");
        let beside = locks.lock(name).shared().try_acquire().await.unwrap().expect("readers go together");
        for guard in [reader, beside] {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
        ground.within.lock_in_transaction(&mut tx, name).await.expect("it is free now");
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn those_who_wait_keep_their_places_and_get_in_beside_a_transaction_that_found_them() {
    for mut ground in grounds().await {
        let (locks, name) = (&ground.locks, &ground.name);
        let guard = locks.lock(name).ttl(TTL).acquire().await.unwrap();
        let waiting = tokio::spawn(locks.lock(name).ttl(TTL).acquire());
        let gives_up = tokio::spawn(locks.lock(name).ttl(TTL).wait(TTL).acquire());
        while locks.inspect(name).await.unwrap().is_none_or(|state| state.waiters.len() < 2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut tx = ground.connection.start_transaction(TxOpts::default()).await.unwrap();
        assert_eq!(ground.within.try_lock_in_transaction(&mut tx, name).await.unwrap(), None);
        tokio::time::sleep(TTL * 2).await;
        gives_up.await.unwrap().expect_err("it had no time left");
        let state = locks.inspect(name).await.unwrap().unwrap();
        assert_eq!(state.waiters.len(), 1, "whoever gives up leaves, and nobody else");
        guard.check().expect("it was renewed all the while");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let next = tokio::time::timeout(TTL, waiting).await.expect("it is its turn").unwrap().unwrap();
        assert_eq!(next.release().await.unwrap(), Release::Released);
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_that_was_renewed_beside_its_row_is_renewed_beside_a_transaction_that_found_it() {
    for mut ground in grounds().await {
        let (name, prefix) = (&ground.name, &ground.prefix);
        let ttl = Duration::from_secs(30);
        let guard = ground.locks.lock(name).ttl(ttl).no_renew().acquire().await.unwrap();
        // As if somebody had sat on the row for longer than the ttl.
        let renewed =
            format!("insert into {prefix}renewals select owner, expires from {prefix}locks where name = ?");
        ground.root.exec_drop(renewed, (name,)).await.unwrap();
        let expired = format!("update {prefix}locks set expires = 1 where name = ?");
        ground.root.exec_drop(expired, (name,)).await.unwrap();
        let mut tx = ground.connection.start_transaction(TxOpts::default()).await.unwrap();
        assert_eq!(ground.within.try_lock_in_transaction(&mut tx, name).await.unwrap(), None);
        // So that there is something to renew.
        tokio::time::sleep(TTL).await;
        guard.ensure(ttl - TTL / 2).await.expect("nobody is in the way");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_is_being_renewed_in_the_last_moment_is_not_taken_for_dead() {
    for mut ground in grounds().await {
        let (name, prefix) = (&ground.name, &ground.prefix);
        let reader = ground.locks.lock(name).shared().no_renew().acquire().await.unwrap();
        let expired = format!("update {prefix}claims set expires = 1 where name = ?");
        ground.root.exec_drop(expired, (name,)).await.unwrap();
        let mut renewal = ground.root.start_transaction(TxOpts::default()).await.unwrap();
        let renewed = format!("update {prefix}claims set expires = 1e16 where name = ?");
        renewal.exec_drop(renewed, (name,)).await.unwrap();
        let mut tx = ground.connection.start_transaction(TxOpts::default()).await.unwrap();
        let asked = ground.within.try_lock_in_transaction(&mut tx, name);
        let commits = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            renewal.commit().await.unwrap();
        };
        let (asked, ()) = tokio::join!(asked, commits);
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Deadlock);
        // The transaction is still in the user's hands, and has nothing.
        assert_eq!(reader.release().await.unwrap(), Release::Released);
        tx.rollback().await.unwrap();
    }
}
