//! Leases in MariaDB's tables: how the tables come to be, what cleaning up leaves, and what servers do to them.

use std::time::Duration;

use crate::support::{config, connection, locks};
use mysql_async::prelude::Queryable;
use tollgate_core::{BootClock, ErrorKind, Keeper, OwnerId, Release, Revocation};
use tollgate_mysql::{Dialect, Login, ddl};
use tollgate_testkit::engines::{self, Config, Data};

const DIALECTS: [Dialect; 2] = [Dialect::MariaDb, Dialect::MySql];

#[tokio::test]
async fn ten_who_start_at_once_find_the_tables() {
    for dialect in DIALECTS {
        let engine = engines::private(&Config::mariadb()).unwrap();
        let mut config = config(engine.address());
        config.dialect = Some(dialect);
        let all = (0..10).map(|_| async {
            let locks = locks(config.clone()).await;
            locks.lock("a").acquire().await.unwrap().release().await.unwrap()
        });
        for released in futures_util::future::join_all(all).await {
            assert_eq!(released, Release::Released);
        }
    }
}

#[tokio::test]
async fn who_may_not_create_tables_hears_how_to_get_them_and_can_use_them_then() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let mut root = connection(engine.address()).await;
    root.query_drop("create database shop").await.unwrap();
    root.query_drop("create user ann@localhost identified by 'secret'").await.unwrap();
    root.query_drop("grant select, insert, update, delete, execute on shop.* to ann@localhost")
        .await
        .unwrap();
    let mut config = config(engine.address());
    config.database = "shop".to_owned();
    config.login = Login { user: "ann".to_owned(), password: Some("secret".to_owned()) };
    let clock = std::sync::Arc::new(BootClock::new(Keeper::global().unwrap()));
    let error = tollgate_mysql::connect(config.clone(), clock).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("sql-schema"), "{error}");
    // Twice: it can be run again.
    for _ in 0..2 {
        crate::support::apply(engine.address(), "shop", &ddl(&config).unwrap());
    }
    let locks = locks(config).await;
    let guard = locks.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("a").acquire());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// While somebody uses them: procedures are away for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_an_older_version_are_brought_up_to_date() {
    for dialect in DIALECTS {
        let engine = engines::private(&Config::mariadb()).unwrap();
        let (mut config, mut root) = (config(engine.address()), connection(engine.address()).await);
        config.dialect = Some(dialect);
        let before = locks(config.clone()).await;
        let held = before.lock("a").acquire().await.unwrap();
        root.query_drop("drop procedure tollgate_revoke").await.unwrap();
        root.query_drop("update tollgate_version set version = 1").await.unwrap();
        let busy = tokio::spawn({
            let before = before.clone();
            async move {
                for _ in 0..100 {
                    before.lock("b").shared().acquire().await.unwrap().release().await.unwrap();
                }
            }
        });
        config.dialect = None;
        let after = locks(config).await;
        assert_eq!(after.revoke_by_force("a", held.token()).await.unwrap(), Revocation::Revoked);
        let version = root.query_first("select version from tollgate_version").await.unwrap();
        assert_eq!(version, Some(3_i64));
        assert!(after.lock("a").acquire().await.unwrap().token() > held.token());
        busy.await.unwrap();
    }
}

#[tokio::test]
async fn tables_of_one_dialect_are_not_used_with_the_other() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let mut config = config(engine.address());
    locks(config.clone()).await;
    config.dialect = Some(Dialect::MySql);
    let clock = std::sync::Arc::new(BootClock::new(Keeper::global().unwrap()));
    let error = tollgate_mysql::connect(config, clock).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

#[tokio::test]
async fn rows_that_nobody_uses_go_and_tokens_rise_all_the_same() {
    for dialect in DIALECTS {
        let engine = engines::private(&Config::mariadb()).unwrap();
        let mut config = config(engine.address());
        config.dialect = Some(dialect);
        let locks = locks(config).await;
        let mut root = connection(engine.address()).await;
        let guard = locks.lock("a").acquire().await.unwrap();
        let before = guard.token();
        guard.release().await.unwrap();
        let held = locks.lock("b").acquire().await.unwrap();
        // As if a minute had passed.
        root.query_drop("update tollgate_locks set expires = expires - 120000000 where owner is null")
            .await
            .unwrap();
        root.query_drop("call tollgate_sweep()").await.unwrap();
        let left: Vec<String> = root.query("select name from tollgate_locks order by name").await.unwrap();
        let expected: &[&str] = if dialect == Dialect::MySql { &["a", "b"] } else { &["b"] };
        assert_eq!(left, expected);
        held.check().unwrap();
        assert_eq!(held.release().await.unwrap(), Release::Released);
        let again = locks.lock("a").acquire().await.unwrap();
        assert!(again.token() > before);
        again.release().await.unwrap();
    }
}

#[tokio::test]
async fn clients_that_come_and_go_clean_up_without_being_asked() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let mut root = connection(engine.address()).await;
    let first = locks(config(engine.address())).await;
    first.lock("a").acquire().await.unwrap().release().await.unwrap();
    drop(first);
    root.query_drop("update tollgate_locks set expires = expires - 120000000").await.unwrap();
    // One in sixteen does it soon, so that four hundred in a row who do not are as good as impossible.
    for number in 0.. {
        let left: Option<i64> = root.query_first("select count(*) from tollgate_locks").await.unwrap();
        if left == Some(0) {
            break;
        }
        assert!(number < 400, "nobody cleans up");
        let _client = locks(config(engine.address())).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

#[tokio::test]
async fn a_held_lock_outlives_a_restart_of_the_server() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = locks(config(engine.address())).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(20)).acquire().await.unwrap();
    engine.kill();
    engine.restart(Data::Kept).unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none(), "it is held");
    let before = guard.token();
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = locks.lock("a").acquire().await.unwrap();
    assert!(next.token() > before);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_reader_and_a_writer_who_wait_for_one_row_never_get_in_together() {
    let address = engines::shared(&Config::mariadb()).address();
    let locks = locks(config(address)).await;
    let mut sitter = connection(address).await;
    for _ in 0..tollgate_testkit::scale::scale(20, 1000) {
        let name = format!("both/{}", OwnerId::random().to_hex());
        locks.lock(&name).acquire().await.unwrap().release().await.unwrap();
        let mut tx = sitter.start_transaction(Default::default()).await.unwrap();
        tx.exec_drop("select 1 from tollgate_locks where name = ? for update", (&name,)).await.unwrap();
        let reader = tokio::spawn(locks.lock(&name).shared().try_acquire());
        let writer = tokio::spawn(locks.lock(&name).try_acquire());
        tokio::time::sleep(Duration::from_millis(20)).await;
        tx.commit().await.unwrap();
        let (reader, writer) = (reader.await.unwrap().unwrap(), writer.await.unwrap().unwrap());
        assert!(reader.is_none() || writer.is_none(), "both are in");
        for guard in [reader, writer].into_iter().flatten() {
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_thousand_held_locks_need_a_few_connections() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = locks(config(engine.address())).await;
    let mut guards = Vec::new();
    for number in 0..1000 {
        guards.push(locks.lock(format!("many/{number}")).acquire().await.unwrap());
    }
    let mut root = connection(engine.address()).await;
    let used: Option<i64> = root
        .query_first("select count(*) from information_schema.processlist where user = 'root'")
        .await
        .unwrap();
    assert!(used.unwrap() <= 14, "{used:?} connections");
}

#[tokio::test]
async fn the_wrong_password_and_the_wrong_database_are_told_apart() {
    let address = engines::shared(&Config::mariadb()).address();
    let clock = std::sync::Arc::new(BootClock::new(Keeper::global().unwrap()));
    let mut wrong = config(address);
    wrong.login.password = Some("wrong".to_owned());
    assert_eq!(tollgate_mysql::connect(wrong, clock.clone()).await.err().unwrap().kind(), ErrorKind::Denied);
    let mut wrong = config(address);
    wrong.database = "nowhere".to_owned();
    assert_eq!(tollgate_mysql::connect(wrong, clock.clone()).await.err().unwrap().kind(), ErrorKind::Config);
    let mut wrong = config(address);
    wrong.host.port = 1;
    assert_eq!(tollgate_mysql::connect(wrong, clock).await.err().unwrap().kind(), ErrorKind::Unavailable);
}
