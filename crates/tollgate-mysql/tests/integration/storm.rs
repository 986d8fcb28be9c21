//! Many tasks on fifty names while the server is killed, and replies that are lost by the thousand in a soak.

use crate::support::{config, locks, wire};
use tollgate_mysql::Dialect;
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::proxy::{MySql, Proxy, Which};
use tollgate_testkit::storm::{Repair, lose_replies, storm};

async fn kill_again_and_again(dialect: Dialect) {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let mut config = config(engine.address());
    config.dialect = Some(dialect);
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(locks(config.clone()).await);
    }
    let kill = || {
        engine.kill();
        engine.restart(Data::Kept).unwrap();
        Some(Box::new(|| ()) as Repair<'_>)
    };
    println!("{}", storm(&clients, kill).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_again_and_again_costs_time_and_no_overlap() {
    kill_again_and_again(Dialect::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_where_rows_count_the_tokens() {
    kill_again_and_again(Dialect::MySql).await;
}

#[tokio::test]
async fn replies_that_are_lost_leave_nothing_behind() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let proxy = Proxy::start(engine.address(), MySql);
    let direct = locks(config(engine.address())).await;
    let mine = locks(config(proxy.address())).await;
    lose_replies(&direct, &mine, |operation, deed| {
        proxy.on(Which::matching(move |frame| wire::asks_for(operation, frame)), deed)
    })
    .await;
}
