//! Asks that nobody waits for any more: what they leave is reclaimed, however long the server was away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{config, connection};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tollgate_core::{BootClock, Keeper, Locks};
use tollgate_mysql::MySqlBackend;
use tollgate_sql::Database;
use tollgate_testkit::engines::{self, Config, Engine};

const TTL: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 3;

/// A client whose connections are all open, and its backend.
async fn client(engine: &Engine) -> (Arc<MySqlBackend>, Locks) {
    let mut config = config(engine.address());
    config.connections = CONNECTIONS;
    let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
    let backend = Arc::new(tollgate_mysql::connect(config, clock).await.unwrap());
    let locks = Locks::new(backend.clone()).unwrap();
    let all = (0..CONNECTIONS).map(|number| locks.lock(format!("first/{number}")).acquire());
    for guard in futures_util::future::join_all(all).await {
        guard.unwrap().release().await.unwrap();
    }
    (backend, locks)
}

/// Has so many ask and give up at once, and waits until nobody tries to withdraw them any more.
async fn give_up(locks: &Locks, many: usize) {
    let all = (0..many).map(|number| {
        tokio::time::timeout(
            Duration::from_millis(100),
            locks.lock(format!("left/{number}")).ttl(TTL).acquire(),
        )
    });
    assert!(futures_util::future::join_all(all).await.iter().all(Result::is_err), "nobody answers");
    tokio::time::sleep(TTL * 3).await;
}

/// Which connections others have at the server.
async fn connections(root: &mut Conn) -> Vec<u32> {
    let asked = "select id from information_schema.processlist where user = 'root' and id <> connection_id()";
    root.query(asked).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_for_long_costs_no_place_in_the_pool() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let (_backend, locks) = client(&engine).await;
    engine.pause();
    give_up(&locks, CONNECTIONS).await;
    engine.resume();
    let all = (0..CONNECTIONS).map(|number| locks.lock(format!("next/{number}")).acquire());
    let all = tokio::time::timeout(Duration::from_secs(20), futures_util::future::join_all(all));
    for guard in all.await.expect("there are connections to be had") {
        guard.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_withdrew_is_ended_at_the_server_later() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let (backend, locks) = client(&engine).await;
    let mut root = connection(engine.address()).await;
    let mut left = Vec::new();
    // On a busy machine the server may have ended all of them by the time it is asked.
    for _ in 0..15 {
        left = connections(&mut root).await;
        engine.pause();
        give_up(&locks, CONNECTIONS).await;
        engine.resume();
        let still = connections(&mut root).await;
        left.retain(|id| still.contains(id));
        if !left.is_empty() {
            break;
        }
        // The next round needs a pool that works again.
        locks.lock("between").acquire().await.unwrap().release().await.unwrap();
    }
    assert!(!left.is_empty(), "what was given up is still there");
    backend.database().reclaim(TTL).await;
    let end = Instant::now() + Duration::from_secs(20);
    while connections(&mut root).await.iter().any(|id| left.contains(id)) {
        assert!(Instant::now() < end, "it is there for ever");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let next = tokio::time::timeout(Duration::from_secs(20), locks.lock("next").acquire());
    next.await.expect("there are connections to be had").unwrap().release().await.unwrap();
}
