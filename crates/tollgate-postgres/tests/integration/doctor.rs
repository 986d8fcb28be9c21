//! What is said of a PostgreSQL that is not well.

use crate::support::servers::{client, client_of, locks, secs, shared, url, value};
use tollgate_core::guarantees::Basis;
use tollgate_core::{Checkup, ErrorKind, Fault, Finding, Severity};
use tollgate_postgres::{PostgresConfig, Style};
use tollgate_testkit::engines::{self, Config};

async fn examined(url: &str) -> Checkup {
    examined_for(url, Style::Lease).await
}

async fn examined_for(url: &str, style: Style) -> Checkup {
    let config = PostgresConfig::from_url(url).unwrap();
    let examination = tokio::time::timeout(secs(30), tollgate_postgres::examine(config, style));
    examination.await.expect("it does not hang").expect("it answers")
}

#[track_caller]
fn finding<'a>(checkup: &'a Checkup, severity: Severity, words: &str) -> &'a Finding {
    let found =
        checkup.findings.iter().find(|found| found.severity == severity && found.what.contains(words));
    found.unwrap_or_else(|| panic!("{words:?} is not among {:#?}", checkup.findings))
}

#[tokio::test]
async fn of_one_as_it_comes_there_is_nothing_to_change_and_nothing_was_changed() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let checkup = examined(&url(&engine)).await;
    assert!(checkup.findings.iter().all(|found| found.severity == Severity::Fine), "{:#?}", checkup.findings);
    finding(&checkup, Severity::Fine, "PostgreSQL 15");
    finding(&checkup, Severity::Fine, "may create the tables");
    assert_eq!(checkup.guarantees.under(Fault::EngineRestarted).tokens, Basis::Kept);
    let look = client(&engine).await;
    assert_eq!(value(&look, "select count(*) from pg_namespace where nspname = 'tollgate'").await, "0");
    let _tables = locks(&engine).await;
    finding(&examined(&url(&engine)).await, Severity::Fine, "has all rights that locks need");
}

#[tokio::test]
async fn what_a_crash_forgets_is_told() {
    let careless = ["fsync=off", "full_page_writes=off", "synchronous_commit=off", "autovacuum=off"];
    let config =
        careless.iter().fold(Config::postgres(), |config, setting| config.argument("-c").argument(*setting));
    let engine = engines::private(&config).unwrap();
    let checkup = examined(&url(&engine)).await;
    for words in ["fsync is off", "synchronous_commit is off", "autovacuum is off"] {
        let found = finding(&checkup, Severity::Problem, words);
        assert!(found.advice.as_deref().unwrap().contains("= on"), "{found:?}");
    }
    assert_eq!(checkup.guarantees.under(Fault::EngineRestarted).exclusion, Basis::Broken);
    // What is advised helps.
    let admin = client(&engine).await;
    admin.batch_execute("alter role postgres set synchronous_commit = on").await.unwrap();
    let checkup = examined(&url(&engine)).await;
    assert!(!format!("{checkup:?}").contains("synchronous_commit is off"), "{checkup:#?}");
}

#[tokio::test]
async fn who_may_not_is_told_what_to_grant_and_that_helps() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let admin = client(&engine).await;
    admin.batch_execute("create role app login").await.unwrap();
    let as_app = url(&engine).replace("postgres@", "app@");
    let missing = examined(&as_app).await;
    let found = finding(&missing, Severity::Problem, "app may not create them");
    assert!(found.advice.as_deref().unwrap().contains("sql-schema"), "{found:?}");
    let _tables = locks(&engine).await;
    let checkup = examined(&as_app).await;
    let found = finding(&checkup, Severity::Problem, "app may not use the tables");
    admin.batch_execute(found.advice.as_deref().unwrap()).await.unwrap();
    finding(&examined(&as_app).await, Severity::Fine, "app has all rights that locks need");
    admin.batch_execute("alter role app set default_transaction_isolation = 'serializable'").await.unwrap();
    admin.batch_execute("alter role app set default_transaction_read_only = on").await.unwrap();
    let checkup = examined(&as_app).await;
    finding(&checkup, Severity::Note, "SERIALIZABLE");
    finding(&checkup, Severity::Problem, "are read-only");
}

#[tokio::test]
async fn a_pooler_in_between_is_noticed() {
    let pooler = engines::private(&Config::pgbouncer(shared().address().port())).unwrap();
    for _ in 0..5 {
        finding(&examined(&url(&pooler)).await, Severity::Note, "a pooler in between");
    }
    finding(&examined(&url(shared())).await, Severity::Fine, "has its own server process");
}

#[tokio::test]
async fn a_clock_that_differs_and_a_transaction_that_was_forgotten_are_told() {
    let engine = engines::private(&Config::postgres().own_clock()).unwrap();
    let forgotten = client(&engine).await;
    forgotten.batch_execute("begin; select txid_current()").await.unwrap();
    let process = value(&forgotten, "pg_backend_pid()").await;
    engine.set_clock_ahead(secs(3600));
    let checkup = examined(&url(&engine)).await;
    finding(&checkup, Severity::Note, "ahead of this machine's");
    let found = finding(&checkup, Severity::Note, "a transaction has been open for");
    let advice = found.advice.as_deref().unwrap();
    assert!(found.what.contains("idle in transaction"), "{found:?}");
    let end = format!("pg_terminate_backend({process})");
    assert!(advice.contains(&end), "{advice}");
    value(&client(&engine).await, &end).await;
    let checkup = examined(&url(&engine)).await;
    assert!(!format!("{checkup:?}").contains("has been open"), "{checkup:#?}");
}

#[tokio::test]
async fn connections_that_are_nearly_used_up_are_told() {
    let config = Config::postgres().argument("-c").argument("max_connections=12");
    let engine = engines::private(&config).unwrap();
    let mut clients = Vec::new();
    while clients.len() < 9 {
        clients.push(client_of(&engine, "postgres").await);
    }
    finding(&examined(&url(&engine)).await, Severity::Problem, "of 12 connections are in use");
}

#[tokio::test]
async fn a_replica_is_no_place_for_locks_and_its_primary_says_what_is_lost_with_it() {
    let primary = engines::private(&Config::postgres()).unwrap();
    let replica = engines::private(&Config::postgres()).unwrap();
    let admin = client(&primary).await;
    replica.stop();
    crate::support::servers::copy(&primary, &replica);
    replica.restart(engines::Data::Kept).unwrap();
    crate::support::servers::until(
        &admin,
        "select count(*) from pg_stat_replication where state = 'streaming'",
        "1",
    )
    .await;
    let checkup = examined(&url(&replica)).await;
    finding(&checkup, Severity::Problem, "in recovery");
    let checkup = examined(&url(&primary)).await;
    finding(&checkup, Severity::Note, "connected replicas: 1");
    assert_eq!(checkup.guarantees.under(Fault::FailedOver).tokens, Basis::Broken);
    admin.batch_execute("alter system set synchronous_standby_names = '*'").await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    crate::support::servers::until(
        &admin,
        "select count(*) from pg_stat_replication where sync_state = 'sync'",
        "1",
    )
    .await;
    let checkup = examined(&url(&primary)).await;
    finding(&checkup, Severity::Fine, "commits wait for replicas");
    assert_eq!(checkup.guarantees.under(Fault::FailedOver).tokens, Basis::Kept);
    replica.kill();
    crate::support::servers::until(&admin, "select count(*) from pg_stat_replication", "0").await;
    finding(&examined(&url(&primary)).await, Severity::Problem, "no replica is connected");
}

#[tokio::test]
async fn one_that_is_not_there_is_unavailable() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let url = url(&engine);
    engine.kill();
    let config = PostgresConfig::from_url(&url).unwrap();
    let error = tollgate_postgres::examine(config, Style::Lease).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn of_advisory_locks_it_says_what_those_survive_and_need() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let checkup = examined_for(&url(&engine), Style::Session).await;
    assert!(checkup.findings.iter().all(|found| found.severity == Severity::Fine), "{:#?}", checkup.findings);
    assert!(checkup.subject.starts_with("advisory locks of PostgreSQL"), "{}", checkup.subject);
    let under = |fault| checkup.guarantees.under(fault);
    assert_eq!(under(Fault::HolderPaused).exclusion, Basis::Kept, "nothing expires");
    assert_eq!(under(Fault::ClockForward).exclusion, Basis::Kept, "and no clock is read");
    let restarted = under(Fault::EngineRestarted);
    assert_eq!((restarted.exclusion, restarted.tokens), (Basis::Broken, Basis::Kept));
    let _tables = locks(&engine).await;
    let leases_only = examined_for(&url(&engine), Style::Session).await;
    finding(&leases_only, Severity::Fine, "may create the tables");
    let pooler = engines::private(&Config::pgbouncer(engine.address().port())).unwrap();
    let behind = examined_for(&url(&pooler), Style::Session).await;
    finding(&behind, Severity::Problem, "a pooler in between");
}
