//! Redis with users and passwords, encrypted, behind sentinels, and in a cluster.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::places::{certificate, client_files, cluster, encrypted, member, watched};
use crate::support::{backend, backend_of, claim, cli, locks, refusals, until};
use futures_util::StreamExt;
use tollgate_core::tls::TlsFiles;
use tollgate_core::url::Host;
use tollgate_core::{Attempt, Backend, ErrorKind, Release};
use tollgate_redis::{RedisConfig, Servers};
use tollgate_testkit::engines::{self, Config, Engine};

#[tokio::test]
async fn a_user_with_a_password_takes_locks_and_nothing_else() {
    let engine = engines::private(&Config::redis()).unwrap();
    let rules =
        ["reset", "on", ">s@cret", "~lock:*", "~{lock:*", "&tg:*", "+@scripting", "+@pubsub", "+@read"];
    let commands = ["+@write", "+@connection", "+client|id", "+client|kill", "+time", "-@dangerous"];
    cli(engine.address(), &[&["ACL", "SETUSER", "locker"], &rules[..], &commands[..]].concat());
    let locks = locks(&format!("redis://locker:s%40cret@{}/", engine.address())).await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("a").acquire().await.map(|guard| guard.token()) }
    });
    until("one waits", async || cli(engine.address(), &["EXISTS", "{lock:a}:queue"]) == "1").await;
    let before = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert!(waiting.await.unwrap().unwrap() > before);

    let elsewhere = RedisConfig { prefix: "other:".to_owned(), ..locker_config(&engine) };
    let refused = backend_of(elsewhere).await.unwrap().try_acquire(&claim("a")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(refused.to_string().contains("ACL SETUSER"), "{refused}");
}

fn locker_config(engine: &Engine) -> RedisConfig {
    RedisConfig::from_url(&format!("redis://locker:s%40cret@{}", engine.address())).unwrap()
}

#[tokio::test]
async fn an_encrypted_connection_trusts_only_whom_it_is_told_to() {
    let (folder, port) = (tempfile::tempdir().unwrap(), engines::spare_port());
    for name in ["server", "client", "stranger"] {
        certificate(folder.path(), name);
    }
    let path = |name: &str| folder.path().join(name);
    let engine = engines::private(&encrypted(folder.path(), &port)).unwrap();
    let url = |files: TlsFiles| {
        let mut config = RedisConfig::from_url(&format!("rediss://localhost:{}/", port.number())).unwrap();
        config.servers = Servers::One(Host { name: "localhost".to_owned(), port: port.number() });
        RedisConfig { tls: Some(files), ..config }
    };
    let ours = client_files(folder.path());
    let backend = backend_of(url(ours.clone())).await.unwrap();
    assert!(matches!(backend.try_acquire(&claim("a")).await.unwrap(), Attempt::Granted(_)));

    for (files, kind, says) in [
        (TlsFiles { ca: Some(path("stranger.pem")), ..ours.clone() }, ErrorKind::Config, "?ca=FILE"),
        (TlsFiles { ca: ours.ca.clone(), ..TlsFiles::default() }, ErrorKind::Denied, "?cert=FILE"),
        (
            TlsFiles { cert: Some(path("stranger.pem")), key: Some(path("stranger.key")), ..ours.clone() },
            ErrorKind::Denied,
            "?cert=FILE",
        ),
        (TlsFiles { key: None, ..ours.clone() }, ErrorKind::InvalidArgument, "key=FILE"),
        (TlsFiles { ca: Some(path("nothing.pem")), ..ours.clone() }, ErrorKind::Config, "nothing.pem"),
    ] {
        let error =
            backend_of(url(files.clone())).await.err().unwrap_or_else(|| panic!("{files:?} is let in"));
        assert_eq!(error.kind(), kind, "{files:?}: {error}");
        assert!(error.to_string().contains(says), "{files:?}: {error}");
    }
    drop(engine);
}

#[tokio::test]
async fn the_primary_is_found_through_sentinels_also_after_a_fail_over() {
    let watched = watched().await;
    let dead = engines::spare_port();
    let url = format!("redis-sentinel://{},{}/main", dead.address(), watched.sentinel.address());
    let locks = locks(&url).await.unwrap();
    let first = locks.lock("a").ttl(Duration::from_secs(2)).no_renew().acquire().await.unwrap();
    watched.primary.kill();
    let mut second = None;
    until("the lock is taken on the other one", async || {
        // Busy, if the replica knew of the first and it has not expired yet.
        second = locks.lock("a").try_acquire().await.ok().flatten();
        second.is_some()
    })
    .await;
    let second = second.unwrap();
    assert!(second.token() > first.token());
    assert_eq!(cli(watched.replica.address(), &["EXISTS", "lock:a"]), "1");

    let unknown = format!("redis-sentinel://{}/elsewhere", watched.sentinel.address());
    let error = backend(&unknown).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("elsewhere"), "{error}");
}

fn id_of(address: SocketAddr) -> String {
    cli(address, &["CLUSTER", "MYID"])
}

#[tokio::test]
async fn in_a_cluster_locks_are_spread_handed_over_listed_and_followed_when_they_move() {
    let (engines, _buses) = cluster().await;
    // One is enough to find the others.
    let locks = locks(&format!("redis-cluster://{}", engines[1].address())).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(locks.lock(format!("many/{number}")).acquire().await.unwrap());
    }
    for engine in &engines {
        assert_ne!(cli(engine.address(), &["DBSIZE"]), "0", "every server has some");
    }
    let mut listed: Vec<String> =
        locks.list("many/").map(|state| state.unwrap().name.to_string()).collect().await;
    listed.sort();
    assert_eq!(listed.len(), 30);

    let other = crate::support::locks(&format!("redis-cluster://{}", engines[0].address())).await.unwrap();
    let waiting = tokio::spawn(async move { other.lock("many/7").acquire().await.unwrap().token() });
    until("it waits", async || {
        locks.inspect("many/7").await.unwrap().is_some_and(|state| !state.waiters.is_empty())
    })
    .await;
    let held = guards.remove(7);
    let token = held.token();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap() > token);

    let other = crate::support::locks(&format!("redis-cluster://{}", engines[2].address())).await.unwrap();
    let behind = tokio::spawn(other.lock("many/9").acquire());
    until("one waits", async || {
        locks.inspect("many/9").await.unwrap().is_some_and(|state| !state.waiters.is_empty())
    })
    .await;

    // A slot moves under a lock that is held and waited for: half-way (TRYAGAIN), and for good (MOVED).
    let slot = cli(engines[0].address(), &["CLUSTER", "KEYSLOT", "lock:many/9"]);
    let at =
        engines.iter().position(|engine| !cli(engine.address(), &["GET", "lock:many/9"]).contains("MOVED"));
    let (from, to) = (&engines[at.unwrap()], &engines[(at.unwrap() + 1) % 3]);
    let (from_id, to_id) = (id_of(from.address()), id_of(to.address()));
    cli(to.address(), &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    cli(from.address(), &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    let port = to.address().port().to_string();
    let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    let moves = |keys: [&str; 2]| assert_eq!(cli(from.address(), &[&migrate[..], &keys].concat()), "OK");
    moves(["lock:many/9", "{lock:many/9}:fence"]);
    let nine = guards.iter().find(|guard| guard.name().as_str() == "many/9").unwrap();
    // Neither the holder nor anybody else is told something wrong meanwhile.
    let elsewhere = locks.lock("many/9").try_acquire().await;
    assert_eq!(elsewhere.err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
    assert!(nine.fence().is_ok());
    let refused = || [from, to].map(|engine| refusals(engine.address(), "TRYAGAIN")).iter().sum::<u64>();
    let before = refused();
    until("the waiter was refused", async || refused() > before || behind.is_finished()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!behind.is_finished(), "it gave up");
    moves(["{lock:many/9}:queue", "{lock:many/9}:waiters"]);
    for engine in [to, from] {
        cli(engine.address(), &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    assert!(locks.lock("many/9").try_acquire().await.unwrap().is_none(), "it is still held");
    let token = nine.token();
    let (nine, rest): (Vec<_>, Vec<_>) =
        guards.into_iter().partition(|guard| guard.name().as_str() == "many/9");
    for guard in nine.into_iter().chain(rest) {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    assert!(behind.await.unwrap().unwrap().token() > token);
}

#[tokio::test]
async fn a_waiter_in_a_cluster_outlives_the_server_it_waits_at() {
    let (engines, buses) = cluster().await;
    let bus = engines::spare_port();
    let replica = member(&bus);
    let (port, meeting) = (engines[0].address().port().to_string(), buses[0].number().to_string());
    cli(replica.address(), &["CLUSTER", "MEET", "127.0.0.1", &port, &meeting]);
    let at = |name: &str| cli(engines[0].address(), &["GET", name]).is_empty();
    let name = (0..).map(|number| format!("name/{number}")).find(|name| at(&format!("lock:{name}"))).unwrap();
    let key = format!("lock:{name}");
    until("it copies the first server", async || {
        cli(replica.address(), &["CLUSTER", "REPLICATE", &id_of(engines[0].address())]) == "OK"
    })
    .await;
    // Somebody who is not ours has it, so that a waiter asks again and again.
    assert_eq!(cli(engines[0].address(), &["SET", &key, "somebody"]), "OK");
    let locks = locks(&format!("redis-cluster://{}", engines[1].address())).await.unwrap();
    let waiting = tokio::spawn(async move { locks.lock(name).acquire().await.map(|guard| guard.token()) });
    let copied = || cli(replica.address(), &["DBSIZE"]).parse::<u32>();
    until("it waits, and the copy knows", async || copied().is_ok_and(|keys| keys > 2)).await;

    // It is in the middle of asking when its server falls silent, and never hears of that again.
    engines[0].pause();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cli(replica.address(), &["CLUSTER", "FAILOVER", "TAKEOVER"]), "OK");
    until("the copy has taken over", async || cli(replica.address(), &["DEL", &key]) == "1").await;
    let token = tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it asks the new one");
    token.unwrap().unwrap();
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_behind_sentinels_is_a_fail_over_and_not_a_mistake() {
    let watched = watched().await;
    let locks = locks(&format!("redis-sentinel://{}/main", watched.sentinel.address())).await.unwrap();
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let port = watched.replica.address().port().to_string();
    cli(watched.primary.address(), &["REPLICAOF", "127.0.0.1", &port]);
    let error = locks.lock("b").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("fail-over"), "{error}");
    cli(watched.primary.address(), &["REPLICAOF", "NO", "ONE"]);
    until("there is a primary again", async || match locks.lock("b").try_acquire().await {
        Ok(guard) => guard.is_some(),
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    })
    .await;
}

#[tokio::test]
async fn whose_password_is_wrong_is_said() {
    let watched = watched().await;
    let url = format!("redis-sentinel://:wrong@{}/main", watched.sentinel.address());
    cli(watched.primary.address(), &["CONFIG", "SET", "requirepass", "right"]);
    let error = backend(&url).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().starts_with(&watched.primary.address().to_string()), "{error}");
    cli(watched.primary.address(), &["-a", "right", "CONFIG", "SET", "requirepass", ""]);
    cli(watched.sentinel.address(), &["ACL", "SETUSER", "default", "resetpass", ">theirs"]);
    let error =
        backend(&format!("redis-sentinel://{}/main", watched.sentinel.address())).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let address = watched.sentinel.address().to_string();
    assert!(
        error.to_string().contains(&address) && error.to_string().contains("sentinel_password"),
        "{error}"
    );
}
