//! The gate whose marks are in MariaDB.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use mysql_async::TxOpts;
use support::{config, connection};
use tollgate_core::{ErrorKind, Gate};
use tollgate_mysql::{MySqlFence, MySqlGate};
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::gates::{gate_cases, own, shown, survives_a_crash};

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
