//! What happens to locks when the server has trouble of its own, and when others make it.

use std::time::{Duration, Instant};

use crate::support::{config, connection, locks};
use mysql_async::prelude::Queryable;
use tollgate_core::{BootClock, ErrorKind, GuardState, Keeper, Locks, Release};
use tollgate_mysql::Dialect;
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::proxy::{Direction, Fate, MySql, Proxy};
use tollgate_testkit::small_disk::SmallDisk;

/// Waits until so many wait for `name`.
async fn until_waiting(locks: &Locks, name: &str, many: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let state = locks.inspect(name).await.ok().flatten();
        if state.is_some_and(|state| state.waiters.len() == many) {
            return;
        }
        assert!(Instant::now() < end, "{many} never waited for {name}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_cost_nobody_a_lock() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = locks(config(engine.address())).await;
    let mut root = connection(engine.address()).await;
    let ttl = Duration::from_secs(2);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let waits = tokio::spawn(locks.lock("a").ttl(ttl).acquire());
    until_waiting(&locks, "a", 1).await;
    let mut killed = 0;
    for _ in 0..4 {
        let sql = "select id from information_schema.processlist where id <> connection_id() and command <> 'Daemon'";
        let all: Vec<u64> = root.query(sql).await.unwrap();
        for id in all {
            // Some may be gone by then.
            killed += usize::from(root.query_drop(format!("kill {id}")).await.is_ok());
        }
        tokio::time::sleep(ttl / 3).await;
        assert!(!matches!(guard.state(), GuardState::Lost { .. }));
    }
    assert!(killed > 0);
    guard.check().unwrap();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(10), waits).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_finds_everybody_where_they_were() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = locks(config(engine.address())).await;
    let ttl = Duration::from_secs(30);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let token = guard.token();
    let waits = tokio::spawn(locks.lock("a").ttl(ttl).acquire());
    until_waiting(&locks, "a", 1).await;
    engine.stop();
    let error = locks.lock("b").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "whoever comes is told: {error}");
    engine.restart(Data::Kept).unwrap();
    until_waiting(&locks, "a", 1).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_outlasted() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = locks(config(engine.address())).await;
    let ttl = Duration::from_secs(15);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let waits = tokio::spawn(locks.lock("a").ttl(ttl).acquire());
    until_waiting(&locks, "a", 1).await;
    engine.pause();
    tokio::time::sleep(Duration::from_secs(3)).await;
    engine.resume();
    until_waiting(&locks, "a", 1).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_in_a_black_hole_gets_in_when_it_is_over() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let proxy = Proxy::start(engine.address(), MySql);
    let (direct, locks) = (locks(config(engine.address())).await, locks(config(proxy.address())).await);
    let guard = direct.lock("a").acquire().await.unwrap();
    let waits = tokio::spawn(locks.lock("a").ttl(Duration::from_secs(3)).acquire());
    until_waiting(&direct, "a", 1).await;
    // Who looks again has heard that it waits.
    proxy.take_counts();
    while proxy.counts().requests < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.black_hole(direction, Fate::Lost);
    }
    // Its place ends, and it goes on waiting.
    until_waiting(&direct, "a", 0).await;
    assert!(!waits.is_finished());
    proxy.heal();
    until_waiting(&direct, "a", 1).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap().unwrap().unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_gives_up_to_end_a_deadlock_is_asked_again() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = locks(config(engine.address())).await;
    let mut root = connection(engine.address()).await;
    // From now on it is taken by a plain statement.
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    // Counted where a rollback changes nothing.
    root.query_drop("create table victims (left_over int) engine = memory; insert into victims values (0)")
        .await
        .unwrap();
    root.query_drop(
        "create trigger deadlocks before update on tollgate_locks for each row begin
             if (select left_over from victims) > 0 then
                 update victims set left_over = left_over - 1;
                 signal sqlstate '40001' set mysql_errno = 1213, message_text = 'Deadlock found';
             end if;
         end",
    )
    .await
    .unwrap();
    let mut again = async || root.query_drop("update victims set left_over = 2").await.unwrap();
    again().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    again().await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    again().await;
    let guard = locks.lock("a").ttl(Duration::from_secs(30)).no_renew().acquire().await.unwrap();
    // So that there is something to renew.
    tokio::time::sleep(Duration::from_secs(2)).await;
    again().await;
    guard.ensure(Duration::from_secs(29)).await.expect("it is renewed all the same");
    guard.release().await.unwrap();
    // A procedure, as for whoever is not alone.
    again().await;
    let reader = locks.lock("a").shared().try_acquire().await.unwrap().expect("it is free");
    again().await;
    assert_eq!(reader.release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_ahead_ends_leases_and_no_token_steps_back() {
    let engine = engines::private(&Config::mariadb().own_clock()).unwrap();
    let locks = locks(config(engine.address())).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(30)).no_renew().acquire().await.unwrap();
    engine.set_clock_ahead(Duration::from_secs(3600));
    let next = locks.lock("a").wait(Duration::from_secs(10)).acquire().await.unwrap();
    assert!(next.token() > guard.token(), "the old one is refused by its token");
    engine.set_clock_back(Duration::from_secs(3600));
    // It overstays, as leases by a wall clock do; nobody else gets in before it leaves.
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    let token = next.token();
    next.release().await.unwrap();
    assert!(locks.lock("a").acquire().await.unwrap().token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_connections_left_is_said_and_renewals_keep_theirs() {
    let engine = engines::private(&Config::mariadb().argument("--max-connections=12")).unwrap();
    let address = engine.address();
    // Root has one more than the others.
    connection(address)
        .await
        .query_drop("create user plain@localhost; grant all on test.* to plain@localhost")
        .await
        .unwrap();
    let mut config = config(address);
    config.login.user = "plain".to_owned();
    let locks = locks(config.clone()).await;
    let ttl = Duration::from_secs(2);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    // Its first renewal opens the keeper's connection.
    tokio::time::sleep(ttl).await;
    let mut greedy = Vec::new();
    let options = || {
        mysql_async::OptsBuilder::default()
            .ip_or_hostname(address.ip().to_string())
            .tcp_port(address.port())
            .user(Some("plain"))
            .prefer_socket(false)
    };
    while let Ok(one) = mysql_async::Conn::new(options()).await {
        greedy.push(one);
    }
    let clock = std::sync::Arc::new(BootClock::new(Keeper::global().unwrap()));
    let error = tollgate_mysql::connect(config, clock).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("connections"), "{error}");
    tokio::time::sleep(ttl * 2).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    drop(greedy);
}

/// Only root may do what these do: mount file systems, change users.
mod as_root {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_disk_refuses_and_loses_nothing() {
        for dialect in [Dialect::MariaDb, Dialect::MySql] {
            let disk = SmallDisk::mount();
            let engine = engines::private(&Config::mariadb()).unwrap();
            let mut root = connection(engine.address()).await;
            let data: String = root.query_first("select @@datadir").await.unwrap().unwrap();
            // A database is a folder: the tables of locks are on the small disk.
            std::os::unix::fs::symlink(disk.place("mysql"), format!("{data}/small")).unwrap();
            let mut config = config(engine.address());
            (config.database, config.dialect) = ("small".to_owned(), Some(dialect));
            let locks = locks(config).await;
            let ttl = Duration::from_secs(60);
            let guard = locks.lock("kept").ttl(ttl).acquire().await.unwrap();
            let shared = locks.lock("shared").shared().ttl(ttl).acquire().await.unwrap();
            let rest = disk.fill();
            let mut held = Vec::new();
            let refused = loop {
                assert!(held.len() < 20_000, "the disk is full");
                match locks.lock(format!("full/{}", held.len())).ttl(ttl).acquire().await {
                    Ok(guard) => held.push(guard),
                    Err(error) => break error,
                }
            };
            println!("{} locks fitted: {refused}", held.len());
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
            assert!(refused.to_string().contains("disk"), "{refused}");
            for guard in [&guard, &shared] {
                guard.ensure(ttl - Duration::from_millis(1500)).await.expect("what is held can be renewed");
            }
            std::fs::remove_file(rest).unwrap();
            let end = Instant::now() + Duration::from_secs(30);
            while let Err(error) = locks.lock("after").acquire().await {
                assert!(Instant::now() < end, "there is room again: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let token = guard.token();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert!(locks.lock("kept").acquire().await.unwrap().token() > token);
            assert_eq!(shared.release().await.unwrap(), Release::Released);
            drop(held);
            engine.stop();
        }
    }
}
