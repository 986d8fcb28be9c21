//! The gate whose marks are in PostgreSQL.

use std::sync::Arc;

use crate::support::servers::{client, shared};
use tollgate_core::{ErrorKind, Gate};
use tollgate_postgres::{PostgresConfig, PostgresFence, PostgresGate};
use tollgate_testkit::engines::{self, Config, Data, Engine};
use tollgate_testkit::gates::{gate_cases, own, shown, survives_a_crash};

async fn gate(engine: &Engine) -> PostgresGate {
    let url = format!("postgres://postgres@{}/postgres", engine.address());
    PostgresGate::connect(PostgresConfig::from_url(&url).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gate_on_postgres_keeps_the_contract() {
    let gate: Arc<dyn Gate> = Arc::new(gate(shared()).await);
    gate_cases(&gate).await;
}

#[tokio::test]
async fn a_mark_outlives_a_crash_also_where_commits_do_not_wait_for_the_disk() {
    let config = Config::postgres().argument("-c").argument("synchronous_commit=off");
    let engine = engines::private(&config).unwrap();
    let gate: Arc<dyn Gate> = Arc::new(gate(&engine).await);
    survives_a_crash(&gate, || engine.kill(), || engine.restart(Data::Kept).unwrap()).await;
}

#[tokio::test]
async fn what_is_fenced_in_tables_and_by_a_gate_is_one_resource() {
    let (gate, mut client, name) = (gate(shared()).await, client(shared()).await, own("one"));
    let fence = PostgresFence::new();
    gate.admit(&name, shown(9, true)).await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    assert_eq!(
        fence.admit(&mut transaction, &name, shown(8, true)).await.unwrap_err().kind(),
        ErrorKind::Lost
    );
    transaction.rollback().await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    fence.admit(&mut transaction, &name, shown(10, true)).await.unwrap();
    // Somebody is in with a larger token, though nobody can read that yet.
    for late in [shown(9, true), shown(9, false), shown(11, true)] {
        assert_eq!(gate.admit(&name, late).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    transaction.commit().await.unwrap();
    assert_eq!(gate.admit(&name, shown(9, true)).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_holder_that_is_in_is_let_in_by_reading_alone() {
    let (gate, mut client, name) = (gate(shared()).await, client(shared()).await, own("reading"));
    let fence = PostgresFence::new();
    for raised_in_tables in [false, true] {
        if raised_in_tables {
            let mut transaction = client.transaction().await.unwrap();
            fence.admit(&mut transaction, &name, shown(9, true)).await.unwrap();
            transaction.commit().await.unwrap();
        }
        gate.admit(&name, shown(9, true)).await.unwrap();
        // Where the row is, and who was at it last: a write, or a lock, changes one of them.
        let row = async || {
            let row = "select ctid::text || xmax::text from tollgate.fences where resource = $1";
            client.query_one(row, &[&name]).await.unwrap().get::<_, String>(0)
        };
        let before = row().await;
        for _ in 0..10 {
            gate.admit(&name, shown(9, true)).await.unwrap();
            assert_eq!(gate.admit(&name, shown(8, true)).await.unwrap_err().kind(), ErrorKind::Lost);
        }
        assert_eq!(row().await, before);
    }
}

#[tokio::test]
async fn a_mark_that_is_no_token_lets_nobody_in() {
    let (gate, client, name) = (gate(shared()).await, client(shared()).await, own("damaged"));
    gate.admit(&name, shown(9, true)).await.unwrap();
    for damage in [-5_i64, 1 << 53] {
        let set = "update tollgate.fences set token = $2 where resource = $1";
        client.execute(set, &[&name, &damage]).await.unwrap();
        for fence in [shown(9, true), shown(9, false)] {
            let error = gate.admit(&name, fence).await.unwrap_err();
            assert!(error.message().contains("set it to the largest token"), "{error}");
        }
        assert!(gate.highest(&name).await.is_err());
    }
}
