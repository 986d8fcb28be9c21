//! Many tasks on fifty names while leaders are killed, and replies that are lost by the thousand in a soak.

use crate::support::{leader, locks, url};
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::proxy::{Proxy, Which};
use tollgate_testkit::storm::{Repair, lose_replies, storm};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_die_cost_elections_and_no_overlap() {
    let engine = engines::private(&Config::etcd().nodes(3)).unwrap();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(locks(&url(&engine)).await.unwrap());
    }
    let kill = || {
        let old = leader(&engine)?;
        old.kill();
        Some(Box::new(|| old.restart(Data::Kept).unwrap()) as Repair<'_>)
    };
    println!("{}", storm(&clients, kill).await);
}

#[tokio::test]
async fn replies_that_are_lost_leave_nothing_behind() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let direct = locks(&url(&engine)).await.unwrap();
    let mine = locks(&format!("etcd://{}/", proxy.address())).await.unwrap();
    lose_replies(&direct, &mine, |operation, deed| {
        proxy.on(Which::matching(move |frame| crate::support::wire::asks_for(operation, frame)), deed)
    })
    .await;
}
