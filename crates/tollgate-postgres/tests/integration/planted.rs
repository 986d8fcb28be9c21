//! Schemas that others have made first, to have their code run by the next client.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::support::servers::client_at;
use crate::support::{backend, backend_of, client, locks, psql, url};
use tollgate_core::{BootClock, Error, ErrorKind, Gate, Keeper, Locks, Severity};
use tollgate_postgres::{
    AdvisoryBackend, PostgresConfig, PostgresFence, PostgresGate, Style, lock_in_transaction,
};
use tollgate_testkit::engines::{self, Config, Engine};

/// What mallory wants run by a superuser.
const RISE: &str = "begin execute 'alter role mallory superuser';";

/// A database in which mallory may create schemas.
fn with_mallory() -> Engine {
    let engine = engines::private(&Config::postgres()).unwrap();
    let made =
        psql(engine.address(), "create role mallory login; grant create on database postgres to mallory");
    assert_eq!(made, "");
    engine
}

async fn as_mallory(address: SocketAddr, sql: &str) {
    client_at(address, "mallory").await.batch_execute(sql).await.unwrap();
}

fn ddl() -> String {
    tollgate_postgres::ddl(&PostgresConfig::from_url("postgres://h/d").unwrap()).unwrap()
}

fn config(address: SocketAddr, owner: Option<&str>) -> PostgresConfig {
    let mut config = PostgresConfig::from_url(&url(address)).unwrap();
    config.owner = owner.map(ToOwned::to_owned);
    config
}

fn clock() -> Arc<BootClock> {
    Arc::new(BootClock::new(Keeper::global().unwrap()))
}

/// The refusals of a superuser in each way to connect.
async fn refusals(address: SocketAddr) -> Vec<Error> {
    let fence = PostgresFence::new().install(&client(address).await).await;
    vec![
        backend_of(config(address, None)).await.err().unwrap(),
        AdvisoryBackend::connect(config(address, None), None, clock()).await.err().unwrap(),
        PostgresGate::connect(config(address, None)).await.err().unwrap(),
        fence.unwrap_err(),
    ]
}

/// A superuser is refused in every way with these words, and mallory is none.
async fn assert_refused(address: SocketAddr, words: &[&str]) {
    for error in refusals(address).await {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
    let checkup = tollgate_postgres::examine(config(address, None), Style::Lease).await.unwrap();
    let found = checkup.findings.iter().find(|found| found.what.contains(words[0]));
    let found = found.unwrap_or_else(|| panic!("the doctor says nothing: {checkup:#?}"));
    assert_eq!(found.severity, Severity::Problem);
    assert_unprivileged(address);
}

#[track_caller]
fn assert_unprivileged(address: SocketAddr) {
    assert_eq!(psql(address, "select rolsuper from pg_roles where rolname = 'mallory'"), "f");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planted_view_is_not_read_by_a_superuser() {
    let engine = with_mallory();
    let address = engine.address();
    let planted = format!(
        "create schema tollgate; \
         create function tollgate.number() returns integer language plpgsql as $$ {RISE} return 5; end $$; \
         create view tollgate.version as select tollgate.number() as version"
    );
    as_mallory(address, &planted).await;
    assert_refused(address, &["belongs to mallory", "?owner=mallory"]).await;
    // What a view of a superuser does is not known either.
    psql(address, "alter schema tollgate owner to postgres; alter view tollgate.version owner to postgres");
    assert_refused(address, &["\"version\"", "drop it"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planted_trigger_is_not_run_by_a_superuser() {
    let engine = with_mallory();
    let address = engine.address();
    as_mallory(address, &ddl()).await;
    let advisory = tollgate_postgres::ddl_of_advisory(&config(address, None)).unwrap();
    as_mallory(address, &advisory).await;
    let trigger = |table: &str| {
        format!(
            "create trigger rise before insert or update on tollgate.{table} execute function tollgate.rise();"
        )
    };
    let triggers: String =
        ["locks", "claims", "fences", "sessions", "awake", "version"].map(trigger).concat();
    let function = format!(
        "create function tollgate.rise() returns trigger language plpgsql as $$ {RISE} return new; end $$;"
    );
    as_mallory(address, &format!("{function} {triggers}")).await;
    assert_refused(address, &["belongs to mallory", "?owner=mallory"]).await;
    // The schema and its tables alone are not enough.
    let given = "alter schema tollgate owner to postgres; do $$ declare t text; begin \
                 for t in select tablename from pg_tables where schemaname = 'tollgate' loop \
                 execute format('alter table tollgate.%I owner to postgres', t); end loop; end $$; \
                 alter sequence tollgate.tokens owner to postgres";
    assert_eq!(psql(address, given), "");
    assert_refused(address, &["the function", "belongs to mallory"]).await;
    psql(
        address,
        "do $$ declare f text; begin for f in select oid::regprocedure from pg_proc \
                   where pronamespace = 'tollgate'::regnamespace and proname <> 'rise' \
                   loop execute format('alter function %s owner to postgres', f); end loop; end $$",
    );
    assert_refused(address, &["the function of the trigger \"rise\"", "belongs to mallory"]).await;
    psql(address, "drop function tollgate.rise cascade");
    backend(&url(address)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_create_something_in_the_schema_is_not_trusted_either() {
    let engine = with_mallory();
    let address = engine.address();
    backend(&url(address)).await.unwrap();
    PostgresFence::new().install(&client(address).await).await.unwrap();
    AdvisoryBackend::connect(config(address, None), None, clock()).await.unwrap();
    psql(address, "grant create on schema tollgate to mallory");
    assert_refused(address, &["the right to create", "mallory"]).await;
    psql(address, "revoke create on schema tollgate from mallory; grant create on schema tollgate to public");
    assert_refused(address, &["PUBLIC", "revoke create on schema tollgate from public"]).await;
    psql(address, "revoke create on schema tollgate from public");
    backend(&url(address)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_the_url_names_is_trusted() {
    let engine = with_mallory();
    let address = engine.address();
    as_mallory(address, &ddl()).await;
    assert_refused(address, &["belongs to mallory"]).await;
    let trusting = || config(address, Some("mallory"));
    let leases = Locks::new(Arc::new(backend_of(trusting()).await.unwrap())).unwrap();
    leases.lock("a").acquire().await.unwrap().release().await.unwrap();
    AdvisoryBackend::connect(trusting(), None, clock()).await.unwrap();
    let gate = PostgresGate::connect(trusting()).await.unwrap();
    assert_eq!(gate.highest("a").await.unwrap(), None);
    PostgresFence::new().owned_by("mallory").install(&client(address).await).await.unwrap();
    let checkup = tollgate_postgres::examine(trusting(), Style::Lease).await.unwrap();
    assert!(!checkup.findings.iter().any(|found| found.what.contains("belongs to mallory")), "{checkup:#?}");
    let error = backend_of(config(address, Some("other"))).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// One role makes the tables, and another one that is no superuser either uses them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_trusts_the_role_that_has_made_the_tables() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = engine.address();
    psql(
        address,
        "create role migrator login; create role app login; create role stranger login; \
         grant create on database postgres to migrator",
    );
    client_at(address, "migrator").await.batch_execute(&ddl()).await.unwrap();
    psql(
        address,
        "grant usage on schema tollgate to app; \
         grant select, insert, update, delete on all tables in schema tollgate to app; \
         grant usage, select, update on all sequences in schema tollgate to app",
    );
    let app = format!("postgres://app@{address}/postgres");
    locks(&app).await.unwrap().lock("a").acquire().await.unwrap().release().await.unwrap();
    // One of the tables is neither's.
    psql(address, "alter table tollgate.claims owner to stranger");
    let error = backend(&app).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("\"claims\" belongs to stranger"), "{error}");
}

/// A function in another schema that fits better than PostgreSQL's own would be called instead of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_fit_better_than_those_of_postgresql_are_not_called() {
    let engine = with_mallory();
    let address = engine.address();
    psql(address, "grant create on schema public to mallory");
    let better = format!(
        "create function public.hashtextextended(text, integer) returns bigint language plpgsql as \
         $$ {RISE} return 1; end $$"
    );
    as_mallory(address, &better).await;
    let leases = locks(&url(address)).await.unwrap();
    let held = leases.lock("a").acquire().await.unwrap();
    let waits = tokio::spawn(leases.lock("a").acquire());
    crate::support::until("it waits", async || {
        leases.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    held.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
    let advisory = AdvisoryBackend::connect(config(address, None), None, clock()).await.unwrap();
    let advisory = Locks::new(Arc::new(advisory)).unwrap();
    let held = advisory.lock("b").acquire().await.unwrap();
    assert!(advisory.inspect("b").await.unwrap().is_some());
    held.release().await.unwrap();
    let gate = PostgresGate::connect(config(address, None)).await.unwrap();
    let guard = leases.lock("c").acquire().await.unwrap();
    gate.admit("c", guard.fence().unwrap()).await.unwrap();
    let mut user = client(address).await;
    let mut transaction = user.transaction().await.unwrap();
    lock_in_transaction(&mut transaction, "d").await.unwrap();
    PostgresFence::new().admit(&mut transaction, "c", guard.fence().unwrap()).await.unwrap();
    transaction.commit().await.unwrap();
    tollgate_postgres::examine(config(address, None), Style::Lease).await.unwrap();
    assert_unprivileged(address);
}
