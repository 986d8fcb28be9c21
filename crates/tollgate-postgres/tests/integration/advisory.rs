//! PostgreSQL's own advisory locks: beside other programs, and when connections, servers and names make trouble.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::servers::{client, secs, shared, url, value};
use tollgate_core::{BootClock, ErrorKind, Keeper, Locks, LossCause, Release, Result, Revocation};
use tollgate_postgres::{AdvisoryBackend, PostgresConfig};
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::proxy::{Direction, Fate, Postgres, Proxy};

async fn backend(url: &str, key: Option<i64>) -> Result<AdvisoryBackend> {
    let clock = Arc::new(BootClock::new(Keeper::global()?));
    AdvisoryBackend::connect(PostgresConfig::from_url(url)?, key, clock).await
}

async fn locks(url: &str) -> Locks {
    Locks::new(Arc::new(backend(url, None).await.unwrap())).unwrap()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(20), future).await.unwrap_or_else(|_| panic!("it never happened that {what}"))
}

const WAITING: &str = "select count(*) from pg_locks where locktype = 'advisory' and not granted";

#[tokio::test]
async fn other_programs_that_take_the_same_key_are_kept_out_and_keep_out() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(&engine)).await;
    let other = client(&engine).await;
    let key = "hashtextextended('nightly', 0)";
    assert_eq!(value(&other, &format!("pg_try_advisory_lock({key})")).await, "true");
    assert!(locks.lock("nightly").try_acquire().await.unwrap().is_none());
    assert!(locks.lock("nightly").shared().try_acquire().await.unwrap().is_none());
    let state = locks.inspect("nightly").await.unwrap().expect("it is held");
    assert_eq!((state.holders.len(), state.holders[0].token), (1, None), "a stranger has no token");
    let waiting = tokio::spawn(locks.lock("nightly").acquire());
    let look = client(&engine).await;
    crate::support::servers::until(&look, WAITING, "1").await;
    value(&other, &format!("pg_advisory_unlock({key})")).await;
    let guard = soon("it gets in", waiting).await.unwrap().unwrap();
    assert_eq!(value(&other, &format!("pg_try_advisory_lock({key})")).await, "false");
    guard.release().await.unwrap();
    assert_eq!(value(&other, &format!("pg_try_advisory_lock({key})")).await, "true");
}

#[tokio::test]
async fn a_key_of_ones_own_is_the_lock_that_others_know_by_it() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = Locks::new(Arc::new(backend(&url(&engine), Some(-42)).await.unwrap())).unwrap();
    let other = client(&engine).await;
    let guard = locks.lock("theirs").acquire().await.unwrap();
    assert_eq!(value(&other, "pg_try_advisory_lock(-42)").await, "false");
    assert_eq!(locks.inspect("theirs").await.unwrap().unwrap().holders[0].token, Some(guard.token()));
    guard.release().await.unwrap();
    assert_eq!(value(&other, "pg_try_advisory_lock(-42)").await, "true");
}

#[tokio::test]
async fn names_that_are_one_lock_to_postgresql_are_told_apart() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = Locks::new(Arc::new(backend(&url(&engine), Some(7)).await.unwrap())).unwrap();
    let guard = locks.lock("one").acquire().await.unwrap();
    // Who waits would wait for ever, though nobody holds that lock.
    let error = soon("it is told", locks.lock("other").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("\"one\""), "{error}");
    let error = locks.lock("other").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("\"one\""), "{error}");
    assert!(locks.lock("one").try_acquire().await.unwrap().is_none(), "its own name is plainly busy");
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    locks.lock("other").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_pooler_in_between_is_refused() {
    let pooler = engines::private(&Config::pgbouncer(shared().address().port())).unwrap();
    let refused = backend(&url(&pooler), None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("PgBouncer"), "{refused}");
}

/// A pooler that was not noticed when a client connected lends one process to two of its connections.
#[tokio::test]
async fn a_process_that_is_lent_to_two_gives_neither_the_others_lock() {
    locks(&url(shared())).await;
    let (process, other, name) = (client(shared()).await, client(shared()).await, "lent");
    let introduce = async || {
        let answer =
            process.simple_query(include_str!("../../src/advisory/sql/introduce.sql")).await.unwrap();
        let last = answer.iter().rev().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(2) == Some("t")),
            _ => None,
        });
        last.unwrap()
    };
    assert!(!introduce().await, "it is the first");
    process.batch_execute("select set_config('tollgate_session.label', 'mine', false)").await.unwrap();
    assert!(introduce().await, "a second one is told that it is lent");
    for step in
        [include_str!("../../src/advisory/sql/try.sql"), include_str!("../../src/advisory/sql/wait.sql")]
    {
        let take = async |label: &str| {
            process.query_one(step, &[&name, &label]).await.unwrap().get::<_, Option<i64>>(0)
        };
        let release = async |label: &str| {
            let release = include_str!("../../src/advisory/sql/release.sql");
            process.query(release, &[&label]).await.unwrap().len()
        };
        assert_eq!(take("another's").await, Some(0));
        assert_eq!(value(&other, "pg_try_advisory_lock(hashtextextended('lent', 0))").await, "true");
        assert_eq!(value(&other, "pg_advisory_unlock(hashtextextended('lent', 0))").await, "true");
        assert!(take("mine").await.is_some_and(|token| token > 0));
        assert_eq!(release("another's").await, 0);
        assert_eq!(value(&other, "pg_try_advisory_lock(hashtextextended('lent', 0))").await, "false");
        assert_eq!(release("mine").await, 1);
    }
}

/// A pooler that pools sessions leaves each connection its process, and makes it as good as new for the next.
#[tokio::test]
async fn a_pooler_of_sessions_is_as_good_as_none() {
    let pooler = Config::pgbouncer(shared().address().port()).argument("pool_mode = session");
    let pooler = engines::private(&pooler).unwrap();
    for _ in 0..3 {
        let locks = locks(&url(&pooler)).await;
        let guard = locks.lock("through").acquire().await.unwrap();
        assert!(locks.lock("through").try_acquire().await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        locks.close().await;
    }
}

#[tokio::test]
async fn who_may_not_create_is_told_and_who_may_lock_needs_no_more() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let admin = client(&engine).await;
    admin.batch_execute("create role app login").await.unwrap();
    let as_app = url(&engine).replace("postgres@", "app@");
    let refused = backend(&as_app, None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    let operator = locks(&url(&engine)).await;
    let grant = "grant usage on schema tollgate to app; grant all on all tables in schema tollgate to app; \
                 grant all on all sequences in schema tollgate to app";
    admin.batch_execute(grant).await.unwrap();
    let app = locks(&as_app).await;
    let guard = operator.lock("a").acquire().await.unwrap();
    let refused = app.revoke_by_force("a", guard.token()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.to_string().contains("was asked to leave"), "{refused}");
    assert_eq!(soon("it hears of it", guard.lost()).await, LossCause::Revoked);
    guard.release().await.unwrap();
    let guard = app.lock("a").acquire().await.unwrap();
    assert_eq!(operator.revoke_by_force("a", guard.token()).await.unwrap(), Revocation::Revoked);
    assert_eq!(soon("it hears of it", guard.lost()).await, LossCause::Revoked);
    guard.release().await.unwrap();
}

/// Roles that were granted the table of version 2 may break locks after the upgrade, which adds a column, and hear of it.
#[tokio::test]
async fn a_table_of_version_2_is_brought_up_to_date_and_its_rights_stay() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let admin = client(&engine).await;
    locks(&url(&engine)).await.close().await;
    let version_2 = "create role app login; grant usage on schema tollgate to app;
        grant select, insert, update, delete on all tables in schema tollgate to app;
        grant usage, select, update on all sequences in schema tollgate to app;
        alter table tollgate.sessions drop column revoked;
        comment on table tollgate.sessions is 'tollgate advisory 2'";
    admin.batch_execute(version_2).await.unwrap();
    let as_app = url(&engine).replace("postgres@", "app@");
    let refused = backend(&as_app, None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "only the owner can upgrade: {refused}");
    locks(&url(&engine)).await;
    let (app, operator) = (locks(&as_app).await, locks(&as_app).await);
    let guard = app.lock("a").acquire().await.unwrap();
    assert_eq!(operator.revoke("a", guard.token()).await.unwrap(), Revocation::Pending);
    assert_eq!(soon("it hears of it", guard.lost()).await, LossCause::Revoked);
    guard.release().await.unwrap();
}

/// Each connection with a lock listens, so that it is told at once and not by the next ping.
#[tokio::test]
async fn a_revoked_holder_is_told_at_once() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(&engine)).await;
    let mut quickest = Duration::MAX;
    for n in 0..5 {
        let guard = locks.lock(format!("told/{n}")).acquire().await.unwrap();
        // It is written down, and listens.
        let token = locks.inspect(format!("told/{n}")).await.unwrap().unwrap().holders[0].token.unwrap();
        assert_eq!(locks.revoke(format!("told/{n}"), token).await.unwrap(), Revocation::Pending);
        let since = Instant::now();
        assert_eq!(soon("it hears of it", guard.lost()).await, LossCause::Revoked);
        quickest = quickest.min(since.elapsed());
        guard.release().await.unwrap();
    }
    assert!(quickest < Duration::from_millis(500), "it took {quickest:?} to be told");
}

/// `LOCK TABLE` on the table of marks blocks no holder of a lock.
#[tokio::test]
async fn a_table_of_marks_that_cannot_be_read_costs_no_lock() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(&engine)).await;
    let other = client(&engine).await;
    let guard = locks.lock("kept").acquire().await.unwrap();
    locks.inspect("kept").await.unwrap();
    other.batch_execute("begin; lock table tollgate.sessions in access exclusive mode").await.unwrap();
    tokio::time::sleep(secs(8)).await;
    guard.check().unwrap();
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_connection_that_is_ended_takes_its_lock_along_and_the_holder_hears_of_it() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(&engine)).await;
    let operator = client(&engine).await;
    let guard = locks.lock("ended").acquire().await.unwrap();
    let other = locks.lock("stays").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("ended").acquire());
    crate::support::servers::until(&operator, WAITING, "1").await;
    let end = "select pg_terminate_backend(pid) from pg_locks where granted and locktype = 'advisory' \
               and (classid::bigint << 32 | objid::bigint) = hashtextextended('ended', 0)";
    assert_eq!(value(&operator, end).await, "true");
    assert_eq!(soon("the holder hears of it", guard.lost()).await, LossCause::SessionEnded);
    let next = soon("the next is in", waiting).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    next.check().unwrap();
    other.check().unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_is_cut_off_hears_of_it_within_the_ping_interval() {
    let engine = engines::private(&Config::postgres()).unwrap();
    for direction in [Direction::Requests, Direction::Replies] {
        let proxy = Proxy::start(engine.address(), Postgres);
        let locks = locks(&crate::support::url(proxy.address())).await;
        let guard = locks.lock("cut-off").acquire().await.unwrap();
        // The keeper has begun to watch it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy.black_hole(direction, Fate::Lost);
        let since = Instant::now();
        assert_eq!(soon("it hears of it", guard.lost()).await, LossCause::SessionEnded);
        assert!(since.elapsed() < secs(8), "it took {:?}", since.elapsed());
        assert_eq!(guard.fence().unwrap_err().kind(), ErrorKind::Lost);
        proxy.heal();
        // What is dead for us is ended at the server, too.
        let next = soon("the next is in", locks.lock("cut-off").acquire()).await.unwrap();
        assert!(next.token() > guard.token());
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn who_waits_outlasts_a_restart_and_tokens_rise_over_a_crash() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(&engine)).await;
    let guard = locks.lock("crash").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("crash").acquire());
    let look = client(&engine).await;
    crate::support::servers::until(&look, WAITING, "1").await;
    // It is known to wait once somebody has looked after it.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    engine.kill();
    assert_eq!(soon("the holder hears of it", guard.lost()).await, LossCause::SessionEnded);
    engine.restart(Data::Kept).unwrap();
    let next = soon("who waits gets in", waiting).await.unwrap().unwrap();
    assert!(
        next.token().get() > guard.token().get() + 1_000_000,
        "what may be lost of the counter was not left out"
    );
    next.release().await.unwrap();
    let again = locks.lock("crash").acquire().await.unwrap();
    assert!(again.token().get() < next_after(guard.token().get()), "tokens are left out once after a crash");
    again.release().await.unwrap();
}

fn next_after(token: u64) -> u64 {
    token + 1_000_000_100
}

/// From when on a lock is written down for those who look.
const NOTED_AFTER: Duration = Duration::from_millis(50);

#[tokio::test]
async fn short_locks_write_no_table_and_need_few_connections() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let locks = locks(&url(&engine)).await;
    let look = client(&engine).await;
    let (mut short, end) = (0, Instant::now() + secs(60));
    while short < 300 {
        assert!(Instant::now() < end, "no lock is short on this machine");
        let mut longest = Duration::ZERO;
        for n in 0..20 {
            let began = Instant::now();
            locks.lock(format!("short/{}", n % 3)).acquire().await.unwrap().release().await.unwrap();
            longest = longest.max(began.elapsed());
        }
        if longest < NOTED_AFTER {
            // Statistics come late; sizes do not.
            assert_eq!(value(&look, "pg_relation_size('tollgate.sessions')").await, "0");
            short += 20;
        } else {
            // The machine stood still, and one was not short. It is forgotten, and another twenty are tried.
            tokio::time::sleep(NOTED_AFTER * 4).await;
            crate::support::servers::until(&look, "select count(*) from tollgate.sessions", "0").await;
            look.batch_execute("truncate tollgate.sessions").await.unwrap();
        }
    }
    let sessions = "select count(*) from pg_stat_activity where application_name like 'tollgate session %'";
    let open: u32 = value(&look, sessions).await.parse().unwrap();
    // One that was not short keeps its connection until it is forgotten.
    assert!(open <= 5, "{open} connections for one lock at a time");
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(locks.lock(format!("held/{n}")).acquire().await.unwrap());
    }
    crate::support::servers::until(&look, "select count(*) from tollgate.sessions", "20").await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    crate::support::servers::until(&look, "select count(*) from tollgate.sessions", "0").await;
}

#[test]
fn a_lock_outlives_the_runtime_that_took_it() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (locks, guard) = first.block_on(async {
        let locks = locks(&url(&engine)).await;
        let guard = locks.lock("outlives").acquire().await.unwrap();
        (locks, guard)
    });
    drop(first);
    std::thread::sleep(secs(6));
    guard.check().unwrap();
    runtime().block_on(async {
        assert!(locks.lock("outlives").try_acquire().await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        locks.lock("outlives").acquire().await.unwrap().release().await.unwrap();
    });
}

#[tokio::test]
async fn a_socket_in_a_folder_does_as_well() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let folder = engine.folder().join("node-1");
    let url =
        format!("postgres://postgres@/postgres?host={}&port={}", folder.display(), engine.address().port());
    let locks = locks(&url).await;
    let guard = locks.lock("near").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
