//! Many locks: those who come do not notice how many are held, and what was used is cleaned up.

use std::net::SocketAddr;
use std::time::Duration;

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

/// The blocks of the schema's tables and indexes that PostgreSQL has looked at so far.
fn blocks(address: SocketAddr, schema: &str) -> u64 {
    let looked_at = "heap_blks_read + heap_blks_hit + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)";
    let sql = format!("select sum({looked_at}) from pg_statio_user_tables where schemaname = '{schema}'");
    number(address, &sql)
}

/// The blocks that 200 cycles look at, on a client of their own.
async fn blocks_of_cycles(engine: &Engine, schema: &str) -> u64 {
    let before = settled(engine.address(), schema, 0).await;
    let locks = Locks::new(in_schema(engine, schema).await).unwrap();
    for number in 0..200 {
        // Half of them new, half of them known.
        let name = if number % 2 == 0 { format!("new/{number}") } else { "known".to_owned() };
        locks.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
    locks.close().await;
    drop(locks);
    settled(engine.address(), schema, before).await - before
}

/// The count once it is above `before` and rises no more: a connection's server process reports its
/// part when it ends.
async fn settled(address: SocketAddr, schema: &str, before: u64) -> u64 {
    let (mut last, mut same) = (blocks(address, schema), 0);
    while same < 5 || last <= before {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = blocks(address, schema);
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_beside_many_held_locks_looks_at_no_more_of_the_table() {
    let engine = engines::private(&Config::postgres()).unwrap();
    drop(in_schema(&engine, "empty").await);
    let full = Locks::new(in_schema(&engine, "full").await).unwrap();
    let many = scale(4_000, 100_000);
    for number in 0..many {
        let request = full.lock(format!("held/{number}")).ttl(Duration::from_secs(24 * 3600));
        // As a grant the lock stays held without its client.
        request.no_renew().acquire().await.unwrap().into_grant().unwrap();
    }
    full.close().await;
    drop(full);
    psql(engine.address(), "vacuum analyze");
    let (alone, beside) = (blocks_of_cycles(&engine, "empty").await, blocks_of_cycles(&engine, "full").await);
    let ratio = beside as f64 / alone as f64;
    println!("{many} held locks: {beside} blocks are looked at instead of {alone}, {ratio:.2} times as many");
    assert_eq!(
        number(engine.address(), "select count(*) from \"full\".locks where expires > now()"),
        many as u64
    );
    assert!(ratio < 2.0, "{beside} blocks beside {many} locks, {alone} alone");
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
