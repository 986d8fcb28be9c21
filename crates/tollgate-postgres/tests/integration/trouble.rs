//! What happens to locks when the server has trouble of its own, and when others make it.

use std::time::Duration;

use crate::support::{backend_of, client, locks, number, psql, until, url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_core::{Backend, ErrorKind, GuardState, Locks};
use tollgate_postgres::PostgresConfig;
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::proxy::{Direction, Fate, Postgres, Proxy};
use tollgate_testkit::small_disk::SmallDisk;

const TERMINATE: &str =
    "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'tollgate%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_terminated_cost_nobody_a_lock() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let ttl = Duration::from_secs(2);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let waits = tokio::spawn(locks.lock("a").ttl(ttl).acquire());
    until("it waits", async || {
        locks.inspect("a").await.is_ok_and(|state| state.is_some_and(|state| !state.waiters.is_empty()))
    })
    .await;
    for _ in 0..4 {
        assert!(number(engine.address(), TERMINATE) > 0);
        tokio::time::sleep(ttl / 3).await;
        assert!(!matches!(guard.state(), GuardState::Lost { .. }));
    }
    guard.check().unwrap();
    // The first over a connection that is gone may not know; it is repeated.
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(10), waits).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}

/// PgBouncer says that to whoever comes when the process that it was about to lend has just ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_whose_process_has_just_ended_is_asked_again() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, server) = (listener.local_addr().unwrap(), engine.address());
    tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                if number % 3 < 2 {
                    let mut hello = [0; 8];
                    stream.read_exact(&mut hello).await.unwrap();
                    let said = b"SFATAL\0C08P01\0Minvalid server parameter\0\0";
                    let length = (said.len() as u32 + 4).to_be_bytes();
                    stream.write_all(&[b"E", &length[..], said].concat()).await.unwrap();
                    // It reads on, so that what is left does not take the answer along.
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                } else if let Ok(mut theirs) = tokio::net::TcpStream::connect(server).await {
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut theirs).await;
                }
            });
        }
    });
    let locks = locks(&url(address)).await.unwrap();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_finds_everybody_where_they_were() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let guard = locks.lock("a").ttl(Duration::from_secs(20)).acquire().await.unwrap();
    let token = guard.token();
    let waits = tokio::spawn(locks.lock("a").ttl(Duration::from_secs(20)).acquire());
    until("it waits", async || locks.inspect("a").await.unwrap().unwrap().waiters.len() == 1).await;
    engine.stop();
    let error = locks.lock("b").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "whoever comes is told: {error}");
    engine.restart(Data::Kept).unwrap();
    until("it serves again", async || locks.inspect("a").await.is_ok()).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap().unwrap().unwrap();
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_outlasted() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let guard = locks.lock("a").ttl(Duration::from_secs(15)).acquire().await.unwrap();
    let waits = tokio::spawn(locks.lock("a").ttl(Duration::from_secs(15)).acquire());
    until("it waits", async || locks.inspect("a").await.unwrap().unwrap().waiters.len() == 1).await;
    engine.pause();
    tokio::time::sleep(Duration::from_secs(3)).await;
    engine.resume();
    guard.check().unwrap();
    until("it can be given back", async || locks.inspect("a").await.is_ok()).await;
    guard.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), waits)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_in_a_black_hole_gets_in_when_it_is_over() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let proxy = Proxy::start(engine.address(), Postgres);
    let direct = locks(&url(engine.address())).await.unwrap();
    let through = locks(&url(proxy.address())).await.unwrap();
    let guard = direct.lock("a").acquire().await.unwrap();
    let waits = tokio::spawn(through.lock("a").ttl(Duration::from_secs(3)).acquire());
    until("it waits", async || direct.inspect("a").await.unwrap().unwrap().waiters.len() == 1).await;
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.black_hole(direction, Fate::Lost);
    }
    until("its place has ended", async || direct.inspect("a").await.unwrap().unwrap().waiters.is_empty())
        .await;
    assert!(!waits.is_finished(), "it goes on waiting");
    proxy.heal();
    until("it waits again", async || direct.inspect("a").await.unwrap().unwrap().waiters.len() == 1).await;
    guard.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), waits)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_ahead_ends_leases_and_no_token_steps_back() {
    let engine = engines::private(&Config::postgres().own_clock()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let guard = locks.lock("a").ttl(Duration::from_secs(30)).no_renew().acquire().await.unwrap();
    engine.set_clock_ahead(Duration::from_secs(3600));
    let next = locks.lock("a").wait(Duration::from_secs(10)).acquire().await.unwrap();
    assert!(next.token() > guard.token(), "the old one is refused by its token");
    engine.set_clock_back(Duration::from_secs(3600));
    // It overstays, as leases by a wall clock do; nobody else gets in before it leaves.
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    let token = next.token();
    next.release().await.unwrap();
    assert!(locks.lock("a").acquire().await.unwrap().token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_connections_left_is_said_and_renewals_keep_theirs() {
    let engine = engines::private(&Config::postgres().argument("-c").argument("max_connections=12")).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let ttl = Duration::from_secs(2);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    // Its first renewal opens the keeper's connection.
    tokio::time::sleep(ttl).await;
    let mut greedy = Vec::new();
    while let Ok((client, connection)) =
        tokio_postgres::connect(&url(engine.address()), tokio_postgres::NoTls).await
    {
        tokio::spawn(connection);
        greedy.push(client);
    }
    let error = crate::support::backend(&url(engine.address())).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    tokio::time::sleep(ttl * 2).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// By its last statement: it listens, proves that it hears, or keeps places.
const LISTENS: &str = "application_name like 'tollgate%' and \
    (query like 'listen%' or query like 'select pg_notify%' or query like '%with asked as%' or query = 'select 1')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_dies_is_replaced_and_meanwhile_nobody_waits_for_ever() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    for round in 0..5 {
        let guard = locks.lock("a").acquire().await.unwrap();
        let waits = tokio::spawn(locks.lock("a").acquire());
        until("it waits", async || locks.inspect("a").await.unwrap().unwrap().waiters.len() == 1).await;
        let listeners = "select count(pg_terminate_backend(pid)) from pg_stat_activity where ";
        psql(engine.address(), &format!("{listeners} {LISTENS}"));
        guard.release().await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(5), waits).await;
        next.unwrap_or_else(|_| panic!("round {round}")).unwrap().unwrap().release().await.unwrap();
    }
    let listening = format!("select count(*) from pg_stat_activity where {LISTENS}");
    until("it listens again", async || number(engine.address(), &listening) == 1).await;
}

/// Whatever a database has by default: everything that is not READ COMMITTED makes trouble of another kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_isolation_levels_and_serialisation_errors_change_nothing() {
    for level in ["repeatable read", "serializable"] {
        let engine = engines::private(&Config::postgres()).unwrap();
        psql(
            engine.address(),
            &format!("alter database postgres set default_transaction_isolation = '{level}'"),
        );
        let locks = locks(&url(engine.address())).await.unwrap();
        tollgate_testkit::crowd::pass_one_by_one(&locks, "a", 60).await;
    }
}

/// The victim of a deadlock is told so by PostgreSQL, and tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_was_a_deadlocks_victim_is_tried_again() {
    // Each looks once, so long after it began to wait: ours does when the circle has closed, and before theirs.
    let engine =
        engines::private(&Config::postgres().argument("-c").argument("deadlock_timeout=1s")).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    // Whoever writes a row of claims waits for a row of theirs, and they for ours.
    psql(
        engine.address(),
        "create table other (n integer); insert into other values (1); \
         create function meddle() returns trigger language plpgsql as $$ begin \
           perform set_config('lock_timeout', '0', true); update public.other set n = n + 1; return new; end $$; \
         create trigger meddle after insert on tollgate.claims for each row execute function meddle()",
    );
    let held = locks.lock("a").acquire().await.unwrap();
    let mut sitter = client(engine.address()).await;
    let sits = sitter.transaction().await.unwrap();
    sits.batch_execute(
        "set local lock_timeout = 0; set local deadlock_timeout = '10s'; update other set n = n + 1",
    )
    .await
    .unwrap();
    let waits = tokio::spawn(locks.lock("a").acquire());
    // Asked over a connection that is there: a statement has five seconds, and a program to ask with takes some of them.
    let watcher = client(engine.address()).await;
    let blocked = "select from pg_locks where not granted";
    until("it stands before their row", async || watcher.execute(blocked, &[]).await.unwrap() > 0).await;
    // The circle closes: they wait for the row of the lock, which the one before their row has locked.
    let closes = sits.execute("select from tollgate.locks where name = 'a' for update", &[]);
    tokio::time::timeout(Duration::from_secs(10), closes).await.unwrap().unwrap();
    sits.commit().await.unwrap();
    let waiting = async || locks.inspect("a").await.unwrap().unwrap().waiters.len() == 1;
    until("it waits", async || waits.is_finished() || waiting().await).await;
    held.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), waits)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    let deadlocks = "select deadlocks from pg_stat_database where datname = 'postgres'";
    until("there was a deadlock", async || number(engine.address(), deadlocks) > 0).await;
}

/// A server process that is ended may have committed before: its last words do not tell.
#[tokio::test]
async fn what_a_terminated_server_process_was_asked_for_is_not_known() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let mut sitter = client(engine.address()).await;
    let sits = sitter.transaction().await.unwrap();
    sits.batch_execute("select from tollgate.locks where name = 'a' for update").await.unwrap();
    let watcher = client(engine.address()).await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where application_name like 'tollgate%' and wait_event_type = 'Lock'";
    let terminated = async || while watcher.execute(end, &[]).await.unwrap() == 0 {};
    let (acquired, ()) = tokio::join!(locks.lock("a").try_acquire(), terminated());
    assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Indeterminate);
    sits.rollback().await.unwrap();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}

/// Programs that end their runtimes leave no connections behind for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtimes_that_end_take_their_connections_with_them() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let config = PostgresConfig::from_url(&url(engine.address())).unwrap();
    let backend = std::sync::Arc::new(backend_of(config).await.unwrap());
    let locks = Locks::new(backend.clone() as std::sync::Arc<dyn Backend>).unwrap();
    for _ in 0..20 {
        let locks = locks.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { locks.lock("a").acquire().await.unwrap().release().await.unwrap() });
        });
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    }
    let ours = "select count(*) from pg_stat_activity where application_name like 'tollgate%'";
    until("they are closed", async || number(engine.address(), ours) <= 5).await;
}

/// Only root may do what these do: mount file systems, change users.
mod as_root {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_disk_refuses_and_loses_nothing() {
        let disk = SmallDisk::mount();
        let engine = engines::private(&Config::postgres()).unwrap();
        let address = engine.address();
        // The tables of locks are on the small disk.
        psql(address, &format!("create tablespace small location '{}'", disk.place("postgres").display()));
        psql(address, "alter role postgres set default_tablespace = small");
        let locks = locks(&url(address)).await.unwrap();
        let ttl = Duration::from_secs(60);
        let guard = locks.lock("kept").ttl(ttl).acquire().await.unwrap();
        let rest = disk.fill();
        let mut held = Vec::new();
        let refused = loop {
            assert!(held.len() < 20_000, "the disk is full");
            match locks.lock(format!("full/{}", held.len())).ttl(ttl).acquire().await {
                Ok(guard) => held.push(guard),
                Err(error) => break error,
            }
        };
        println!("{} locks fitted: {refused}", held.len());
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("disk"), "{refused}");
        guard.check().unwrap();
        std::fs::remove_file(rest).unwrap();
        until("there is room again", async || locks.lock("after").acquire().await.is_ok()).await;
        guard.ensure(ttl / 2).await.unwrap();
        guard.release().await.unwrap();
        drop(held);
        engine.stop();
    }
}
