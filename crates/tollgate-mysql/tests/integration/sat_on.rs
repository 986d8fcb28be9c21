//! A user's transaction sits on a lock's row: whoever does not want to wait for that is told so, and leaves nothing.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{config, connection, locks};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tollgate_core::Locks;
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Direction, MySql, Proxy};
use tollgate_testkit::sat_on::{
    Sitter, a_crowd_that_gives_up_costs_nobody_a_lock, what_a_slow_way_was_granted_is_given_back,
    what_is_granted_late_is_given_back, who_does_not_wait_is_told_at_once,
    who_gives_up_is_told_in_time_and_leaves_nothing,
};

struct Transaction(Conn);

impl Sitter for Transaction {
    async fn sit(&mut self, name: &str) {
        self.0.query_drop("start transaction").await.unwrap();
        let sql = "select 1 from tollgate_locks where name = ? for update";
        self.0.exec_drop(sql, (name,)).await.unwrap();
    }

    async fn rise(&mut self) {
        self.0.query_drop("commit").await.unwrap();
    }
}

async fn clients<const N: usize>(address: SocketAddr) -> [Locks; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(locks(config(address)).await);
    }
    all.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_before_a_row_that_is_sat_on_is_told_in_time_and_leaves_nothing() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let [other] = clients(engine.address()).await;
    let mut sitter = Transaction(connection(engine.address()).await);
    let clients = clients(engine.address()).await;
    who_gives_up_is_told_in_time_and_leaves_nothing(clients, &other, &mut sitter).await;
    who_does_not_wait_is_told_at_once(&other, &mut sitter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_gives_up_before_a_row_that_is_sat_on_costs_nobody_a_lock() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let [client] = clients(engine.address()).await;
    let mut sitter = Transaction(connection(engine.address()).await);
    a_crowd_that_gives_up_costs_nobody_a_lock(&client, &mut sitter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_granted_when_somebody_has_given_up_is_given_back() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let [client, other] = clients(engine.address()).await;
    let mut sitter = Transaction(connection(engine.address()).await);
    what_is_granted_late_is_given_back(&client, &other, 100, &mut sitter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_granted_over_a_slow_way_is_given_back() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let proxy = Proxy::start(engine.address(), MySql);
    let slow = locks(config(proxy.address())).await;
    let [other] = clients(engine.address()).await;
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.delay(direction, Duration::from_millis(170));
    }
    what_a_slow_way_was_granted_is_given_back(&slow, &other).await;
}
