//! A user's transaction sits on a lock's row: whoever does not want to wait for that is told so, and leaves nothing.

use std::time::Duration;

use crate::support::{client, locks, url};
use tokio_postgres::Client;
use tollgate_core::Locks;
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Direction, Postgres, Proxy};
use tollgate_testkit::sat_on::{
    Sitter, a_crowd_that_gives_up_costs_nobody_a_lock, what_a_slow_way_was_granted_is_given_back,
    what_is_granted_late_is_given_back, who_does_not_wait_is_told_at_once,
    who_gives_up_is_told_in_time_and_leaves_nothing,
};

struct Transaction(Client);

impl Sitter for Transaction {
    async fn sit(&mut self, name: &str) {
        self.0.batch_execute("begin").await.unwrap();
        self.0.execute("select from tollgate.locks where name = $1 for update", &[&name]).await.unwrap();
    }

    async fn rise(&mut self) {
        self.0.batch_execute("commit").await.unwrap();
    }
}

async fn clients<const N: usize>(url: &str) -> [Locks; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(locks(url).await.unwrap());
    }
    all.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_before_a_row_that_is_sat_on_is_told_in_time_and_leaves_nothing() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let (url, mut sitter) = (url(engine.address()), Transaction(client(engine.address()).await));
    let [other] = clients(&url).await;
    who_gives_up_is_told_in_time_and_leaves_nothing(clients(&url).await, &other, &mut sitter).await;
    who_does_not_wait_is_told_at_once(&other, &mut sitter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_gives_up_before_a_row_that_is_sat_on_costs_nobody_a_lock() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let (url, mut sitter) = (url(engine.address()), Transaction(client(engine.address()).await));
    let [client] = clients(&url).await;
    a_crowd_that_gives_up_costs_nobody_a_lock(&client, &mut sitter).await;
}

/// The user's own limit is shorter than a row is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_timeout_of_the_user_ends_no_wait() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let (url, mut sitter) = (url(engine.address()), Transaction(client(engine.address()).await));
    sitter.0.batch_execute("alter role postgres set statement_timeout = '200ms'").await.unwrap();
    let [client] = clients(&url).await;
    client.lock("limited").acquire().await.unwrap().release().await.unwrap();
    sitter.sit("limited").await;
    let waits = tokio::spawn(client.lock("limited").acquire());
    tokio::time::sleep(Duration::from_secs(2)).await;
    sitter.rise().await;
    waits.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_behind_a_pooler() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let pooler = engines::private(&Config::pgbouncer(engine.address().port())).unwrap();
    let (url, mut sitter) = (url(pooler.address()), Transaction(client(engine.address()).await));
    let [other] = clients(&url).await;
    who_gives_up_is_told_in_time_and_leaves_nothing(clients(&url).await, &other, &mut sitter).await;
    who_does_not_wait_is_told_at_once(&other, &mut sitter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_granted_when_somebody_has_given_up_is_given_back() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let (url, mut sitter) = (url(engine.address()), Transaction(client(engine.address()).await));
    let [client, other] = clients(&url).await;
    what_is_granted_late_is_given_back(&client, &other, 100, &mut sitter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_granted_over_a_slow_way_is_given_back() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let proxy = Proxy::start(engine.address(), Postgres);
    let slow = locks(&url(proxy.address())).await.unwrap();
    let [other] = clients(&url(engine.address())).await;
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.delay(direction, Duration::from_millis(170));
    }
    what_a_slow_way_was_granted_is_given_back(&slow, &other).await;
}
