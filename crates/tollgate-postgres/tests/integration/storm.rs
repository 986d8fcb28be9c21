//! Many tasks on fifty names while the server is killed, and replies that are lost by the thousand in a soak.

use std::sync::Arc;

use crate::support::{backend_of, locks, url, wire};
use tollgate_core::Locks;
use tollgate_postgres::PostgresConfig;
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::proxy::{Postgres, Proxy, Which};
use tollgate_testkit::storm::{Repair, lose_replies, storm};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_again_and_again_costs_time_and_no_overlap() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let mut clients = Vec::new();
    for _ in 0..8 {
        // PostgreSQL has room for a hundred connections, also of those who are just leaving.
        let mut config = PostgresConfig::from_url(&url(engine.address())).unwrap();
        config.connections = 3;
        clients.push(Locks::new(Arc::new(backend_of(config).await.unwrap())).unwrap());
    }
    let kill = || {
        engine.kill();
        engine.restart(Data::Kept).unwrap();
        Some(Box::new(|| ()) as Repair<'_>)
    };
    println!("{}", storm(&clients, kill).await);
}

#[tokio::test]
async fn replies_that_are_lost_leave_nothing_behind() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let proxy = Proxy::start(engine.address(), Postgres);
    let direct = locks(&url(engine.address())).await.unwrap();
    let mine = locks(&url(proxy.address())).await.unwrap();
    lose_replies(&direct, &mine, |operation, deed| {
        proxy.on(Which::matching(move |frame| wire::asks_for(operation, frame)), deed)
    })
    .await;
}
