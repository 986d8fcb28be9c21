//! Locks that live as long as a transaction: they and leases exclude each other, and nobody's renewal is held up.

use std::time::Duration;

use crate::support::{config, connection, locks};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tollgate_core::{ErrorKind, Locks, OwnerId, Release};
use tollgate_mysql::{Dialect, MySqlTransactions};
use tollgate_testkit::engines::{self, Config};

/// Locks, and a connection whose transactions can wait.
async fn ground() -> (Locks, Conn, MySqlTransactions, String) {
    let address = engines::shared(&Config::mariadb()).address();
    let locks = locks(config(address)).await;
    let name = format!("orders/{}", OwnerId::random().to_hex());
    (locks, patient(address).await, MySqlTransactions::new(), name)
}

async fn patient(address: std::net::SocketAddr) -> Conn {
    let mut connection = connection(address).await;
    connection.query_drop("set session transaction isolation level read committed").await.unwrap();
    connection
}

#[tokio::test]
async fn a_transaction_and_a_lease_exclude_each_other() {
    let (locks, mut connection, within, name) = ground().await;
    let guard = locks.lock(&name).acquire().await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    assert_eq!(within.try_lock_in_transaction(&mut tx, &name).await.unwrap(), None);
    let before = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Released, "its row is not kept");
    let token = within.lock_in_transaction(&mut tx, &name).await.unwrap();
    assert!(token > before);
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none(), "a transaction has it");
    tx.commit().await.unwrap();
    let next = locks.lock(&name).acquire().await.unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_gets_in_when_the_transaction_ends_however_it_does() {
    for ends in ["commit", "rollback", "connection"] {
        let (locks, mut connection, within, name) = ground().await;
        let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
        within.lock_in_transaction(&mut tx, &name).await.unwrap();
        let waiting = tokio::spawn(locks.lock(&name).acquire());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiting.is_finished(), "it is in beside a transaction");
        match ends {
            "commit" => tx.commit().await.unwrap(),
            "rollback" => tx.rollback().await.unwrap(),
            _ => {
                let address = engines::shared(&Config::mariadb()).address();
                let id = tx.id();
                let mut other = crate::support::connection(address).await;
                other.query_drop(format!("kill connection {id}")).await.unwrap();
            }
        }
        let guard = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_that_waits_keeps_no_holder_from_renewing() {
    let (locks, mut connection, within, name) = ground().await;
    let ttl = Duration::from_secs(2);
    let guard = locks.lock(&name).ttl(ttl).acquire().await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    let waited = within.lock_in_transaction_within(&mut tx, &name, ttl * 2).await.unwrap();
    assert_eq!(waited, None);
    guard.check().expect("it was renewed all the while");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert!(within.lock_in_transaction(&mut tx, &name).await.is_ok());
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn above_read_committed_a_lock_in_use_rolls_the_transaction_back() {
    let (locks, _, within, name) = ground().await;
    let address = engines::shared(&Config::mariadb()).address();
    let ttl = Duration::from_secs(2);
    let guard = locks.lock(&name).ttl(ttl).acquire().await.unwrap();
    let mut connection = connection(address).await;
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    let error = within.lock_in_transaction(&mut tx, &name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    assert!(error.to_string().contains("read committed"), "{error}");
    // The transaction is still in the user's hands, and has nothing.
    tokio::time::sleep(ttl * 2).await;
    guard.check().expect("it was renewed all the while");
    guard.release().await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    within.lock_in_transaction(&mut tx, &name).await.expect("a free lock can be had at any level");
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn who_sits_on_a_row_for_ten_seconds_makes_nobody_lose_a_lock() {
    let (locks, mut connection, _, name) = ground().await;
    let ttl = Duration::from_secs(4);
    let others: Vec<_> = (0..4).map(|number| format!("{name}/{number}")).collect();
    let mut guards = Vec::new();
    for other in &others {
        guards.push(locks.lock(other).ttl(ttl).acquire().await.unwrap());
    }
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    MySqlTransactions::new().lock_in_transaction(&mut tx, &name).await.unwrap();
    let waiting = tokio::spawn(locks.lock(&name).ttl(ttl).acquire());
    tokio::time::sleep(Duration::from_secs(10)).await;
    guards.iter().for_each(|guard| guard.check().unwrap());
    tx.commit().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn who_sits_on_the_row_of_a_held_lock_does_not_cost_its_holder_the_lock() {
    let (locks, mut connection, _, name) = ground().await;
    let ttl = Duration::from_secs(4);
    let guard = locks.lock(&name).ttl(ttl).acquire().await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    tx.exec_drop("select 1 from tollgate_locks where name = ? for update", (&name,)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    guard.check().expect("it was renewed beside its row");
    tx.commit().await.unwrap();
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none(), "its row has expired, and it has not");
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    let within = MySqlTransactions::new();
    assert_eq!(within.try_lock_in_transaction(&mut tx, &name).await.unwrap(), None, "also for a transaction");
    tx.rollback().await.unwrap();
    let before = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = locks.lock(&name).acquire().await.unwrap();
    assert!(next.token() > before);
    next.release().await.unwrap();
}

#[tokio::test]
async fn two_transactions_exclude_each_other_and_tokens_rise_with_rows_that_count() {
    let address = engines::shared(&Config::mariadb()).address();
    let mut config = config(address);
    config.table_prefix = "counting_".to_owned();
    config.dialect = Some(Dialect::MySql);
    let locks = locks(config).await;
    let within = MySqlTransactions::with_table_prefix("counting_").unwrap();
    let first = locks.lock("a").acquire().await.unwrap();
    let token = first.token();
    first.release().await.unwrap();
    let (mut one, mut other) = (patient(address).await, patient(address).await);
    other.query_drop("set session innodb_lock_wait_timeout = 1").await.unwrap();
    let mut tx = one.start_transaction(TxOpts::default()).await.unwrap();
    let second = within.lock_in_transaction(&mut tx, "a").await.unwrap();
    let mut late = other.start_transaction(TxOpts::default()).await.unwrap();
    assert_eq!(within.try_lock_in_transaction(&mut late, "a").await.unwrap(), None);
    tx.commit().await.unwrap();
    let third = within.lock_in_transaction(&mut late, "a").await.unwrap();
    assert!(token < second && second < third);
    late.rollback().await.unwrap();
}

#[tokio::test]
async fn without_tables_it_says_how_to_get_them() {
    let address = engines::shared(&Config::mariadb()).address();
    let mut connection = patient(address).await;
    let within = MySqlTransactions::with_table_prefix("nobody_").unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    let error = within.lock_in_transaction(&mut tx, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("sql-schema"), "{error}");
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn readers_that_died_do_not_shut_transactions_out() {
    let (locks, mut connection, within, name) = ground().await;
    let ttl = Duration::from_millis(300);
    let reader = locks.lock(&name).shared().ttl(ttl).no_renew().acquire().await.unwrap();
    tokio::time::sleep(ttl * 2).await;
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    let token = within.lock_in_transaction(&mut tx, &name);
    let token = tokio::time::timeout(Duration::from_secs(10), token).await.expect("it is free").unwrap();
    assert!(token > reader.token());
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn who_asks_again_in_one_transaction_gets_the_same_token() {
    for dialect in [Dialect::MariaDb, Dialect::MySql] {
        let address = engines::shared(&Config::mariadb()).address();
        let mut config = config(address);
        config.table_prefix = format!("again_{dialect:?}_");
        config.dialect = Some(dialect);
        let within = MySqlTransactions::with_table_prefix(&config.table_prefix).unwrap();
        let locks = locks(config).await;
        // At any level: what it reads is what it has locked.
        for level in ["read committed", "repeatable read"] {
            let mut connection = connection(address).await;
            connection.query_drop(format!("set session transaction isolation level {level}")).await.unwrap();
            let mut last = None;
            // However it ends, and though nobody else was in: another transaction is another passage.
            for commits in [true, false, true, true] {
                let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
                let token = within.lock_in_transaction(&mut tx, "a").await.unwrap();
                assert!(Some(token) > last || dialect == Dialect::MySql, "{token} after {last:?}");
                within.lock_in_transaction(&mut tx, "b").await.unwrap();
                tx.query_drop("savepoint s").await.unwrap();
                assert_eq!(within.lock_in_transaction(&mut tx, "a").await.unwrap(), token);
                tx.query_drop("rollback to savepoint s").await.unwrap();
                assert_eq!(within.try_lock_in_transaction(&mut tx, "a").await.unwrap(), Some(token));
                assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "it is a transaction's");
                if commits {
                    tx.commit().await.unwrap();
                    assert_ne!(last, Some(token), "what was committed is not given again");
                    last = Some(token);
                } else {
                    tx.rollback().await.unwrap();
                }
            }
            let guard = locks.lock("a").acquire().await.unwrap();
            assert!(Some(guard.token()) > last);
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_transaction_that_has_ended_by_itself_gets_no_lock() {
    let (_locks, mut connection, within, name) = ground().await;
    connection.query_drop("create table if not exists before_it (n integer)").await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    within.lock_in_transaction(&mut tx, &name).await.unwrap();
    // It commits.
    tx.query_drop("create table if not exists before_it (n integer)").await.unwrap();
    let error = within.lock_in_transaction(&mut tx, &name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    tx.rollback().await.unwrap();
}
