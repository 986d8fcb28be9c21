//! How the tables come into the database, and what is said when they cannot.

use std::sync::Arc;

use crate::support::{backend, backend_of, locks, number, psql, url};
use tollgate_core::{BootClock, ErrorKind, Keeper, Locks, Release};
use tollgate_postgres::{AdvisoryBackend, PostgresConfig};
use tollgate_testkit::engines::{self, Config};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_that_start_at_once_make_the_tables_once() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let starting: Vec<_> = (0..10)
        .map(|_| {
            let url = url(engine.address());
            tokio::spawn(async move {
                locks(&url).await.unwrap().lock("first").acquire().await.unwrap().release().await
            })
        })
        .collect();
    for start in starting {
        start.await.unwrap().unwrap();
    }
    assert_eq!(number(engine.address(), "select count(*) from tollgate.version"), 1);
    assert_eq!(number(engine.address(), "select last_value from tollgate.tokens"), 10);
}

#[tokio::test]
async fn tables_are_called_as_the_url_says() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let mut config = PostgresConfig::from_url(&url(engine.address())).unwrap();
    config.schema = "Other".to_owned();
    config.table_prefix = "my_".to_owned();
    let printed = tollgate_postgres::ddl(&config).unwrap();
    assert!(!printed.contains("tollgate.") && printed.contains("\"Other\".\"my_locks\""), "{printed}");
    backend_of(config).await.unwrap();
    let tables = psql(
        engine.address(),
        "select string_agg(tablename, ' ' order by tablename) from pg_tables where schemaname = 'Other'",
    );
    assert_eq!(tables, "my_claims my_fences my_locks my_renewals my_revocations my_version");
}

#[tokio::test]
async fn a_user_without_rights_is_told_what_to_have_done_and_then_needs_none() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = engine.address();
    psql(address, "create role plain login; revoke create on database postgres from public");
    let plain = format!("postgres://plain@{address}/postgres");
    let error = backend(&plain).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("tollgate sql-schema"), "{error}");
    // As the message says.
    let ddl = tollgate_postgres::ddl(&PostgresConfig::from_url(&plain).unwrap()).unwrap();
    psql(address, &ddl);
    let grants: Vec<_> = ddl.lines().filter_map(|line| line.strip_prefix("--   grant")).collect();
    assert_eq!(grants.len(), 3, "the text says what to grant");
    for grant in grants {
        psql(address, &format!("grant{}", grant.replace("SOMEBODY", "plain")));
    }
    let guard = locks(&plain).await.unwrap().lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn tables_of_another_version_are_not_touched() {
    let engine = engines::private(&Config::postgres()).unwrap();
    backend(&url(engine.address())).await.unwrap();
    psql(engine.address(), "update tollgate.version set version = 99");
    let error = backend(&url(engine.address())).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("version 99"), "{error}");
}

#[tokio::test]
async fn tables_of_an_older_version_are_brought_up_to_date() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let held = locks.lock("a").acquire().await.unwrap();
    psql(engine.address(), "update tollgate.version set version = 1; drop function tollgate.raise_floor");
    backend(&url(engine.address())).await.unwrap();
    let functions = "select count(*) from pg_proc where proname = 'raise_floor'";
    assert_eq!(number(engine.address(), functions), 1);
    assert_eq!(number(engine.address(), "select version from tollgate.version"), 5);
    assert_eq!(held.release().await.unwrap(), Release::Released);
}

/// Roles that were granted the tables of an earlier version go on renewing after the upgrade, which adds a table.
#[tokio::test]
async fn an_upgrade_keeps_the_rights_of_those_who_use_the_tables() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = engine.address();
    backend(&url(address)).await.unwrap();
    let plain = "create role app login; grant usage on schema tollgate to app;
        grant select, insert, update, delete on all tables in schema tollgate to app;
        grant usage, select, update on all sequences in schema tollgate to app;
        drop table tollgate.revocations; update tollgate.version set version = 3";
    psql(address, plain);
    backend(&url(address)).await.unwrap();
    let locks = locks(&format!("postgres://app@{address}/postgres")).await.unwrap();
    let ttl = std::time::Duration::from_secs(1);
    let (alone, shared) = (locks.lock("a").ttl(ttl), locks.lock("b").shared().ttl(ttl));
    let (alone, shared) = (alone.acquire().await.unwrap(), shared.acquire().await.unwrap());
    tokio::time::sleep(ttl * 2).await;
    for guard in [alone, shared] {
        guard.check().expect("it was renewed");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    let public = number(
        address,
        "select count(*) from information_schema.role_table_grants
         where table_name = 'revocations' and grantee = 'PUBLIC'",
    );
    assert_eq!(public, 0);
}

#[tokio::test]
async fn what_is_wrong_with_a_url_is_said() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = engine.address();
    let error = backend(&format!("postgres://postgres@{address}/nowhere")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let error = backend(&format!("postgres://nobody@{address}/postgres")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let port = engines::spare_port();
    let error = backend(&url(port.address())).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&port.address().port().to_string()), "{error}");
}

#[tokio::test]
async fn who_may_not_create_what_advisory_locks_need_can_have_it_made() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = engine.address();
    psql(address, "create role plain login; revoke create on database postgres from public");
    let config = PostgresConfig::from_url(&format!("postgres://plain@{address}/postgres")).unwrap();
    let clock = || Arc::new(BootClock::new(Keeper::global().unwrap()));
    let error = AdvisoryBackend::connect(config.clone(), None, clock()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("tollgate sql-schema"), "{error}");
    let ddl = tollgate_postgres::ddl_of_advisory(&config).unwrap();
    assert!(!ddl.contains("claims"), "it needs no tables of leases");
    psql(address, &ddl);
    for grant in ddl.lines().filter_map(|line| line.strip_prefix("--   grant")) {
        psql(address, &format!("grant{}", grant.replace("SOMEBODY", "plain")));
    }
    let locks = Locks::new(Arc::new(AdvisoryBackend::connect(config, None, clock()).await.unwrap())).unwrap();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}
