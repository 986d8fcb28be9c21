//! Many locks: those who come do not notice how many are held, and what was used is cleaned up.

use std::time::{Duration, Instant};

use crate::support::{backend_of, number, psql, url};
use tollgate_core::Locks;
use tollgate_postgres::{PostgresBackend, PostgresConfig};
use tollgate_sql::Database;
use tollgate_testkit::engines::{self, Config, Engine};
use tollgate_testkit::scale::{is_soak, scale};

async fn in_schema(engine: &Engine, schema: &str) -> std::sync::Arc<PostgresBackend> {
    let mut config = PostgresConfig::from_url(&url(engine.address())).unwrap();
    config.schema = schema.to_owned();
    std::sync::Arc::new(backend_of(config).await.unwrap())
}

/// How long a cycle takes, in the middle.
async fn cycle(locks: &Locks, round: usize) -> Duration {
    let mut times = Vec::new();
    for number in 0..50 {
        let began = Instant::now();
        // Half of them new, half of them known.
        let name = if number % 2 == 0 { format!("new/{round}/{number}") } else { "known".to_owned() };
        locks.lock(name).acquire().await.unwrap().release().await.unwrap();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_beside_many_held_locks_takes_no_longer() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let (empty, full) = (in_schema(&engine, "empty").await, in_schema(&engine, "full").await);
    let (empty, full) = (Locks::new(empty).unwrap(), Locks::new(full).unwrap());
    let many = scale(4_000, 100_000);
    let mut held = Vec::new();
    for number in 0..many {
        let request = full.lock(format!("held/{number}")).ttl(Duration::from_secs(24 * 3600));
        held.push(request.acquire().await.unwrap());
    }
    let mut ratios: Vec<f64> = Vec::new();
    for round in 0..9 {
        // In turns, so that a noisy machine is noisy to both.
        let (alone, beside) = (cycle(&empty, round).await, cycle(&full, round).await);
        ratios.push(beside.as_secs_f64() / alone.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    println!("{many} held locks: an acquire and release takes {:.2} times as long as with none", ratios[4]);
    assert!(ratios[4] < if is_soak() { 1.5 } else { 2.0 }, "{ratios:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_uses_any_more_is_cleaned_up_and_tokens_go_on_rising() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = engine.address();
    let backend = in_schema(&engine, "tollgate").await;
    let locks = Locks::new(backend.clone()).unwrap();
    let cycles = scale(4_000, 1_000_000);
    let tasks = 8;
    let mut working = Vec::new();
    for task in 0..tasks {
        let locks = locks.clone();
        working.push(tokio::spawn(async move {
            for number in 0..cycles / tasks {
                // A quarter of them in crowds.
                let name = if number % 4 == 0 {
                    format!("shared/{}", number % 3)
                } else {
                    format!("{task}/{number}")
                };
                locks.lock(name).acquire().await.unwrap().release().await.unwrap();
            }
        }));
    }
    for work in working {
        work.await.unwrap();
    }
    let token = locks.lock("0/1").acquire().await.unwrap().token();
    let size = || {
        psql(
            address,
            "select pg_size_pretty(sum(pg_total_relation_size(oid))) from pg_class \
                                 where relnamespace = 'tollgate'::regnamespace and relkind = 'r'",
        )
    };
    println!(
        "after {cycles} cycles: {} rows, {}",
        number(address, "select count(*) from tollgate.locks"),
        size()
    );
    // Held by somebody who is gone, and idle ones: all of them long ago.
    psql(address, "update tollgate.locks set expires = expires - interval '1 day'");
    while number(address, "select count(*) from tollgate.locks") > 0 {
        backend.database().sweep().await.unwrap();
    }
    assert_eq!(number(address, "select count(*) from tollgate.claims"), 0);
    if is_soak() {
        // As it is shipped, autovacuum looks every minute.
        tokio::time::sleep(Duration::from_secs(150)).await;
    }
    println!(
        "after cleaning up: {} rows, {}",
        number(address, "select count(*) from tollgate.locks"),
        size()
    );
    let later = locks.lock("0/1").acquire().await.unwrap().token();
    assert!(later > token, "{later} after {token}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_died_together_is_cleaned_up() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let address = engine.address();
    let backend = in_schema(&engine, "tollgate").await;
    for (mode, waits) in [("s", true), ("p", true), ("x", true)] {
        for _ in 0..5 {
            let sql = format!(
                "select tollgate.acquire('dead/{mode}', gen_random_uuid(), '{mode}', 2, 1, 1, 'nobody', '{{}}', {waits}, null)"
            );
            psql(address, &sql);
        }
    }
    psql(address, "update tollgate.claims set expires = expires - interval '1 day'");
    psql(address, "update tollgate.locks set expires = expires - interval '1 day'");
    for _ in 0..3 {
        backend.database().sweep().await.unwrap();
        psql(address, "update tollgate.locks set expires = expires - interval '1 day'");
    }
    let left = "select (select count(*) from tollgate.claims) + (select count(*) from tollgate.locks)";
    assert_eq!(number(address, left), 0);
}
