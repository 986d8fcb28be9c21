//! What a crowd that waits costs the server, and that it loses nothing by costing little.

use std::time::{Duration, Instant};

use crate::support::{client, locks, number, psql, until, url};
use tokio::task::JoinHandle;
use tollgate_core::{GuardState, LockRequest, Locks};
use tollgate_testkit::engines::{self, Config};

const CONNECTIONS: &str = "select count(*) from pg_stat_activity where application_name like 'tollgate%'";

/// Tasks that each take the lock in their turn, and give it back.
fn crowd(locks: &Locks, size: usize, ttl: Duration) -> Vec<JoinHandle<()>> {
    let serve = |request: LockRequest| async move {
        request.acquire().await.unwrap().release().await.unwrap();
    };
    (0..size).map(|_| tokio::spawn(serve(locks.lock("a").ttl(ttl)))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_of_one_program_that_wait_have_six_connections_at_most_and_then_one() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let watcher = client(engine.address()).await;
    let locks = locks(&url(engine.address())).await.unwrap();
    let ttl = Duration::from_secs(6);
    let held = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let waits = crowd(&locks, 1000, ttl);
    let mut most = 0;
    let mut until_queued = true;
    while until_queued {
        most = most.max(watcher.query_one(CONNECTIONS, &[]).await.unwrap().get::<_, i64>(0));
        let waiting = watcher.query_one("select count(*) from tollgate.claims", &[]).await.unwrap();
        until_queued = waiting.get::<_, i64>(0) < 1000;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let end = Instant::now() + ttl * 2;
    let mut last = 0;
    while Instant::now() < end {
        last = watcher.query_one(CONNECTIONS, &[]).await.unwrap().get::<_, i64>(0);
        most = most.max(last);
        assert!(!matches!(held.state(), GuardState::Lost { .. }), "the holder lost its lock");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("1000 tasks wait with {last} connections, {most} at most");
    assert!(most <= 6, "{most} connections");
    assert!(last <= 2, "{last} connections, though all wait, and one renews");
    let all = "select count(*) from tollgate.claims where expires > clock_timestamp()";
    assert_eq!(number(engine.address(), all), 1000, "every place was kept for twice its ttl");
    held.release().await.unwrap();
    for served in waits {
        served.await.unwrap();
    }
}

/// Statements of a crowd over `time`, as the server counts transactions.
async fn transactions_in(watcher: &tokio_postgres::Client, time: Duration) -> i64 {
    let sum = "select xact_commit + xact_rollback from pg_stat_database where datname = 'postgres'";
    let before: i64 = watcher.query_one(sum, &[]).await.unwrap().get(0);
    tokio::time::sleep(time).await;
    let after: i64 = watcher.query_one(sum, &[]).await.unwrap().get(0);
    after - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_program_refresh_their_places_together() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let watcher = client(engine.address()).await;
    let locks = locks(&url(engine.address())).await.unwrap();
    let ttl = Duration::from_secs(6);
    let held = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let waits = crowd(&locks, 300, ttl);
    until("all wait", async || number(engine.address(), "select count(*) from tollgate.claims") == 300).await;
    // The first looks of each are over then, and the connections are closed that queued them up: they tell their counts late.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let time = Duration::from_secs(8);
    let statements = transactions_in(&watcher, time).await;
    println!("300 tasks that wait for 8 s: {statements} statements, with the renewals");
    // Each of them alone would be refreshed four times in that time.
    assert!(statements < 300, "{statements} statements");
    held.release().await.unwrap();
    for served in waits {
        served.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_behind_those_who_died_is_in_when_their_time_is_over() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let ttl = Duration::from_secs(4);
    let held = locks.lock("a").ttl(ttl).no_renew().acquire().await.unwrap();
    let began = Instant::now();
    // Predecessors that never say anything again: the first dies with the holder, the second a little later.
    for (ticket, seconds) in [(1, 4), (2, 5)] {
        psql(
            engine.address(),
            &format!(
                "insert into tollgate.claims values ('a', {ticket}, gen_random_uuid(), 'x', 1, null, \
                 clock_timestamp() + interval '{seconds} s', 4000, 0, 'nobody', '{{}}'); \
                 update tollgate.locks set last = last + 1, waiters = waiters + 1 where name = 'a'"
            ),
        );
    }
    // Its own time is long, so that it refreshes its place seldom.
    let waits = tokio::spawn(locks.lock("a").ttl(Duration::from_secs(300)).acquire());
    let next = tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap().unwrap().unwrap();
    let took = began.elapsed();
    println!("in after {took:?}, though the holder and two before it died");
    assert!(next.token() > held.token());
    assert!(took > ttl && took < Duration::from_secs(6) + Duration::from_secs(1), "{took:?}");
    next.release().await.unwrap();
}
