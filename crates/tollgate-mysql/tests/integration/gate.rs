//! The gate whose marks are in MariaDB.

use std::sync::Arc;

use crate::support::{config, connection};
use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use tollgate_core::{ErrorKind, Gate};
use tollgate_mysql::{MySqlFence, MySqlGate};
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::gates::{gate_cases, own, shown, survives_a_crash};
use tollgate_testkit::proxy::{MySql, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gate_on_mariadb_keeps_the_contract() {
    let address = engines::shared(&Config::mariadb()).address();
    let gate: Arc<dyn Gate> = Arc::new(MySqlGate::connect(config(address)).await.unwrap());
    gate_cases(&gate).await;
}

#[tokio::test]
async fn a_mark_outlives_a_crash() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let gate: Arc<dyn Gate> = Arc::new(MySqlGate::connect(config(engine.address())).await.unwrap());
    survives_a_crash(&gate, || engine.kill(), || engine.restart(Data::Kept).unwrap()).await;
}

#[tokio::test]
async fn what_is_fenced_in_tables_and_by_a_gate_is_one_resource() {
    let address = engines::shared(&Config::mariadb()).address();
    let gate = MySqlGate::connect(config(address)).await.unwrap();
    let (mut connection, name) = (connection(address).await, own("one"));
    let fence = MySqlFence::around(&name).unwrap();
    gate.admit(&name, shown(9, true)).await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    assert_eq!(fence.admit(&mut tx, shown(8, true)).await.unwrap_err().kind(), ErrorKind::Lost);
    tx.rollback().await.unwrap();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    fence.admit(&mut tx, shown(10, true)).await.unwrap();
    // Somebody is in with a larger token, though nobody can read that yet.
    for late in [shown(9, true), shown(9, false), shown(11, true)] {
        assert_eq!(gate.admit(&name, late).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    tx.commit().await.unwrap();
    assert_eq!(gate.admit(&name, shown(9, true)).await.unwrap_err().kind(), ErrorKind::Lost);
    // Raised by others before this gate has seen it: its own write brings it to the disk.
    let other = MySqlGate::connect(config(address)).await.unwrap();
    other.admit(&name, shown(10, true)).await.unwrap();
}

#[tokio::test]
async fn a_mark_is_told_by_the_raise_and_not_by_a_read_that_a_replica_may_answer() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let proxy = Proxy::start(engine.address(), MySql);
    let gate = MySqlGate::connect(config(proxy.address())).await.unwrap();
    let mut root = connection(engine.address()).await;
    // The first one of a connection prepares what it asks.
    gate.admit("before", shown(1, true)).await.unwrap();
    let reads = "show global status like 'Com_select'";
    let before: (String, u64) = root.query_first(reads).await.unwrap().unwrap();
    for (token, is_first) in [(7, true), (8, true), (7, false), (9, true)] {
        proxy.take_counts();
        let admitted = gate.admit("told", shown(token, true)).await;
        assert_eq!(admitted.is_ok(), is_first, "{token}: {admitted:?}");
        assert_eq!(proxy.take_counts().requests, 1, "{token}");
    }
    let after: (String, u64) = root.query_first(reads).await.unwrap().unwrap();
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_mark_that_is_none_is_an_error_and_lets_nobody_in() {
    let address = engines::shared(&Config::mariadb()).address();
    let gate = MySqlGate::connect(config(address)).await.unwrap();
    let mut root = connection(address).await;
    for wrong in [-5, i64::MIN, 1 << 53, i64::MAX] {
        let name = own("wrong");
        root.exec_drop("insert into tollgate_fences values (?, ?)", (&name, wrong)).await.unwrap();
        let asked = [
            gate.admit(&name, shown(7, true)).await.unwrap_err(),
            gate.admit(&name, shown(7, false)).await.unwrap_err(),
            gate.highest(&name).await.unwrap_err(),
        ];
        for error in asked {
            assert_eq!(error.kind(), ErrorKind::Config, "{wrong}: {error}");
            let message = error.to_string();
            assert!(message.contains(&wrong.to_string()) && message.contains(&name), "{wrong}: {message}");
        }
        let mark = "select token from tollgate_fences where resource = ?";
        let left: Option<i64> = root.exec_first(mark, (&name,)).await.unwrap();
        assert_eq!(left, Some(wrong), "nothing was written over it");
    }
    // Where only readers were it is 0.
    let name = own("none");
    root.exec_drop("insert into tollgate_fences values (?, 0)", (&name,)).await.unwrap();
    assert_eq!(gate.highest(&name).await.unwrap(), None);
    gate.admit(&name, shown(1, true)).await.unwrap();
}
