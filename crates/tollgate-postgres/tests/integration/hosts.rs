//! Several hosts in a URL: one that does not answer costs seconds, and never the connection.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::servers::copy;
use crate::support::{backend_of, client, locks, psql, until};
use tokio::net::{TcpSocket, TcpStream};
use tollgate_core::{Backend, BootClock, Gate, Keeper, Locks};
use tollgate_postgres::{AdvisoryBackend, PostgresConfig, PostgresGate, Style};
use tollgate_testkit::engines::{self, Config, Data, Engine};

/// How long one silent host may hold up a connect: its limit, and what a busy machine adds.
const SOON: Duration = Duration::from_millis(4500);

fn url(hosts: &[SocketAddr]) -> String {
    let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    format!("postgres://postgres@{}/postgres", hosts.join(","))
}

/// A host that accepts connections and says nothing. The kernel accepts them.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// A host that drops what is sent to it: it never accepts, and its backlog is full.
async fn dropping() -> (SocketAddr, Vec<TcpStream>, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
    {
        queued.push(stream.unwrap());
    }
    (address, queued, listener)
}

fn clock() -> Arc<BootClock> {
    Arc::new(BootClock::new(Keeper::global().unwrap()))
}

fn private() -> Engine {
    engines::private(&Config::postgres()).unwrap()
}

async fn soon<T>(what: &str, work: impl Future<Output = tollgate_core::Result<T>>) -> T {
    let started = Instant::now();
    let done = work.await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(started.elapsed() < SOON, "{what} took {:?}", started.elapsed());
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_host_that_stays_silent_keeps_nothing_from_the_second() {
    let (engine, silent) = (private(), silent());
    let url = url(&[silent.local_addr().unwrap(), engine.address()]);
    let config = || PostgresConfig::from_url(&url).unwrap();
    let locks = soon("leases", locks(&url)).await;
    soon("a lock", locks.lock("a").acquire()).await.release().await.unwrap();
    let backend = soon("advisory locks", AdvisoryBackend::connect(config(), None, clock())).await;
    let advisory = Locks::new(Arc::new(backend)).unwrap();
    soon("an advisory lock", advisory.lock("a").acquire()).await.release().await.unwrap();
    let gate = soon("a gate", PostgresGate::connect(config())).await;
    assert_eq!(soon("a mark", gate.highest("a")).await, None);
    soon("the doctor", tollgate_postgres::examine(config(), Style::Lease)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_host_that_drops_packets_keeps_nothing_from_the_second() {
    let engine = private();
    let (dropping, _queued, _listener) = dropping().await;
    let url = url(&[dropping, engine.address()]);
    let locks = soon("leases", locks(&url)).await;
    soon("a lock", locks.lock("a").acquire()).await.release().await.unwrap();
}

/// A caller that gives up before the first host's time is over has it tried last by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_little_patience_get_past_a_silent_host_together() {
    let (engine, silent) = (private(), silent());
    let url = url(&[silent.local_addr().unwrap(), engine.address()]);
    let config = PostgresConfig::from_url(&url).unwrap();
    // The tables are there already: making them takes a busy machine long.
    let alone = self::url(&[engine.address()]);
    drop(backend_of(PostgresConfig::from_url(&alone).unwrap()).await.unwrap());
    // Less than the two seconds that the silent host has.
    let patience = Duration::from_millis(1_900);
    let first = tokio::time::timeout(Duration::from_secs(1), backend_of(config.clone())).await;
    assert!(first.is_err(), "the silent host has two seconds");
    let second = tokio::time::timeout(patience, backend_of(config)).await;
    second.expect("it begins with the other host").unwrap();
}

#[tokio::test]
async fn a_lone_host_that_stays_silent_is_said_to_be() {
    let silent = silent();
    let started = Instant::now();
    let error = locks(&url(&[silent.local_addr().unwrap()])).await.unwrap_err();
    assert_eq!(error.kind(), tollgate_core::ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("did not answer within 5s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let url = format!("{}?connect_timeout=1", url(&[silent.local_addr().unwrap()]));
    let error = locks(&url).await.unwrap_err();
    assert!(error.to_string().contains("did not answer within 1s"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_passed_over() {
    let (primary, standby) = primary_and_standby().await;
    let locks = soon("leases", locks(&url(&[standby.address(), primary.address()]))).await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let error = crate::support::backend(&url(&[standby.address()])).await.err().unwrap();
    assert!(error.to_string().contains("name the primary"), "{error}");
}

/// A primary, and a standby that has all it has.
async fn primary_and_standby() -> (Engine, Engine) {
    let (primary, standby) = (private(), private());
    standby.stop();
    copy(&primary, &standby);
    standby.restart(Data::Kept).unwrap();
    let streaming = "select count(*) from pg_stat_replication where state = 'streaming'";
    until("it streams", async || psql(primary.address(), streaming) == "1").await;
    (primary, standby)
}

/// The old primary stands still: its host still accepts connections, and nothing answers over any of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_in_soon_after_a_fail_over() {
    let (primary, standby) = primary_and_standby().await;
    let both = url(&[primary.address(), standby.address()]);
    let ttl = Duration::from_secs(3);
    let waiting = locks(&both).await.unwrap();
    let backend = crate::support::backend(&url(&[primary.address()])).await.unwrap();
    let claim = tollgate_core::Claim::new("a".parse().unwrap(), tollgate_core::Mode::Exclusive, ttl);
    let attempt = backend.try_acquire(&claim).await.unwrap();
    assert!(matches!(attempt, tollgate_core::Attempt::Granted(_)), "{attempt:?}");
    let waits = tokio::spawn(waiting.lock("a").ttl(Duration::from_secs(20)).acquire());
    until("it waits", async || {
        let state = waiting.inspect("a").await.unwrap();
        state.is_none_or(|state| !state.waiters.is_empty())
    })
    .await;
    let caught_up = "select pg_current_wal_lsn() = replay_lsn from pg_stat_replication";
    until("the standby has it", async || psql(primary.address(), caught_up) == "t").await;
    primary.pause();
    let failed_over = Instant::now();
    psql(standby.address(), "select pg_promote()");
    let next = tokio::time::timeout(Duration::from_secs(30), waits).await;
    let next = next.expect("it gets in").unwrap().unwrap();
    let took = failed_over.elapsed();
    println!("in after {took:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    next.check().unwrap();
    let client = client(standby.address()).await;
    let held = client.query("select from tollgate.locks where name = 'a'", &[]).await.unwrap();
    assert_eq!(held.len(), 1, "the new primary knows of it");
    next.release().await.unwrap();
}
