//! Redlock's own promises on nodes that are well, but do not agree.
#![allow(clippy::unwrap_used)]

mod redlock_support;

use std::time::Duration;

use redlock_support::{MAX_TTL, Nodes, clock, eventually};
use tollgate_core::{Attempt, Backend, Claim, ErrorKind, LockName, Mode, Release, Revocation, Token};
use tollgate_redis::{RedlockBackend, RedlockConfig, redlock_init};
use tollgate_testkit::engines::Config;
use tollgate_testkit::proxy::{Proxy, Resp};

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn claim(lock: &str) -> Claim {
    Claim::new(name(lock), Mode::Exclusive, MAX_TTL)
}

/// A time in µs that is ahead of every clock here.
const AHEAD: u64 = 4_000_000_000_000_000;

#[tokio::test]
async fn nodes_that_disagree_are_brought_to_the_highest_token() {
    let nodes = Nodes::three().await;
    for (node, ahead) in [(0, 5), (1, 70), (2, 300)] {
        let counter = (AHEAD + ahead).to_string();
        let _: String = nodes.raw(node, &["SET", "{lock:a}:fence", &counter]).await;
    }
    let locks = nodes.locks().await;
    let first = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    // Two answers decide, so the highest of those that came first.
    let token = first.token();
    assert!([AHEAD + 71, AHEAD + 301].contains(&token.get()), "{token}");
    eventually("a majority stands at the token", async || {
        let mut standing = 0;
        for node in 0..3 {
            let value = nodes.value(node, "a").await.unwrap_or_default();
            standing += usize::from(value.split(' ').nth(1) == Some(&token.to_string()));
        }
        standing >= 2
    })
    .await;
    first.release().await.unwrap();
    let second = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    assert!(second.token() > token);
}

#[tokio::test]
async fn a_passage_that_nobody_disturbs_is_two_round_trips() {
    let nodes = Nodes::three().await;
    let addresses: Vec<_> = (0..3).map(|node| nodes.node(node).address()).collect();
    let proxy = Proxy::before_all(&addresses, Resp);
    let urls = proxy.addresses().iter().map(|address| format!("redis://{address}/")).collect();
    let config = RedlockConfig { nodes: urls, ..nodes.config.clone() };
    let backend = RedlockBackend::connect(config, clock()).await.unwrap();
    let pass = async |lock: String| {
        let Attempt::Granted(grant) = backend.try_acquire(&claim(&lock)).await.unwrap() else {
            panic!("a free lock was busy")
        };
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    };
    // After the first start all nodes are ahead of the clocks: the first token tells how far.
    pass("first".to_owned()).await;
    let before = proxy.take_counts().requests;
    assert!(before > 0);
    for round in 0..100 {
        pass(format!("own {round}")).await;
        pass("shared".to_owned()).await;
    }
    let requests = proxy.counts().requests;
    // An acquire that a majority has decided need not be sent to the last.
    assert!((300..=420).contains(&requests), "200 passages took {requests} requests to a node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_reaches_every_node() {
    let mut nodes = Nodes::new(3, &Config::redis());
    // So long that nothing here can end by itself.
    nodes.config.max_ttl = Duration::from_secs(600);
    redlock_init(&nodes.config).await.unwrap();
    let backend = nodes.backend().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let (backend, ttl) = (backend.clone(), nodes.config.max_ttl);
        tasks.spawn(async move {
            for round in 0..30 {
                let claim = Claim { ttl, ..claim(&format!("{task} {round}")) };
                let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
                    panic!("a free lock was busy")
                };
                assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            }
        });
    }
    tasks.join_all().await;
    for node in 0..3 {
        eventually("nothing is left on a node", async || {
            nodes.raw::<Vec<String>>(node, &["KEYS", "lock:*"]).await.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn a_minority_that_is_ours_is_given_back() {
    let nodes = Nodes::three().await;
    for node in [0, 1] {
        let _: String = nodes.raw(node, &["SET", "lock:a", "somebody else", "NX", "PX", "60000"]).await;
    }
    let backend = nodes.backend().await.unwrap();
    let Attempt::Busy(contention) = backend.try_acquire(&claim("a")).await.unwrap() else {
        panic!("two of three have it, and it was granted");
    };
    let retry = contention.retry_after.unwrap();
    assert!(retry <= Duration::from_secs(60) && retry > Duration::from_secs(30), "{retry:?}");
    eventually("nothing of it is left", async || nodes.value(2, "a").await.is_none()).await;
    let state = backend.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!(state.holders[0].token, None, "another client's lock has no token");
}

#[tokio::test]
async fn a_minority_in_the_way_does_not_matter() {
    let nodes = Nodes::three().await;
    let _: String = nodes.raw(1, &["SET", "lock:a", "somebody else", "NX", "PX", "60000"]).await;
    let locks = nodes.locks().await;
    let guard = locks.lock("a").ttl(MAX_TTL).try_acquire().await.unwrap().expect("two of three are free");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(nodes.value(1, "a").await.as_deref(), Some("somebody else"));
}

#[tokio::test]
async fn clients_that_know_nothing_of_tokens_see_a_held_key() {
    let nodes = Nodes::three().await;
    let guard = nodes.locks().await.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    let mut taken = 0;
    for node in 0..3 {
        let set: Option<String> = nodes.raw(node, &["SET", "lock:a", "x", "NX", "PX", "1000"]).await;
        taken += usize::from(set.is_some());
    }
    assert!(taken < 2, "a majority could be taken though the lock is held");
    guard.check().unwrap();
}

#[tokio::test]
async fn a_node_that_lost_a_lock_gets_it_back_by_a_renewal() {
    let nodes = Nodes::three().await;
    let guard = nodes.locks().await.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    eventually("all nodes have it", async || nodes.value(2, "a").await.is_some()).await;
    let _: u64 = nodes.raw(2, &["DEL", "lock:a"]).await;
    eventually("the third node has it again", async || {
        let token = guard.token().to_string();
        nodes.value(2, "a").await.is_some_and(|value| value.split(' ').nth(1) == Some(&token))
    })
    .await;
    // From then on it counts: the lock outlives the loss of another node.
    let _: u64 = nodes.raw(0, &["DEL", "lock:a"]).await;
    tokio::time::sleep(MAX_TTL * 2).await;
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    eventually("no node has it", async || {
        let mut left = 0;
        for node in 0..3 {
            left += usize::from(nodes.value(node, "a").await.is_some());
        }
        left == 0
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_a_majority_lost_is_lost() {
    let nodes = Nodes::three().await;
    let guard = nodes.locks().await.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    eventually("all nodes have it", async || nodes.value(2, "a").await.is_some()).await;
    for node in [0, 2] {
        let _: u64 = nodes.raw(node, &["DEL", "lock:a"]).await;
    }
    let lost = tokio::time::timeout(redlock_support::PATIENCE, guard.lost()).await;
    assert!(lost.is_ok(), "nobody was told");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
}

#[tokio::test]
async fn a_floor_raises_all_later_tokens() {
    let nodes = Nodes::three().await;
    let backend = nodes.backend().await.unwrap();
    backend.raise_floor(&name("a"), Token::new(AHEAD).unwrap()).await.unwrap();
    let Attempt::Granted(grant) = backend.try_acquire(&claim("a")).await.unwrap() else {
        panic!("a free lock was busy")
    };
    assert!(grant.token.get() > AHEAD);
    backend.raise_floor(&name("a"), Token::new(5).unwrap()).await.unwrap();
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    let Attempt::Granted(next) = backend.try_acquire(&claim("a")).await.unwrap() else {
        panic!("a free lock was busy")
    };
    assert!(next.token > grant.token);
}

#[tokio::test]
async fn an_operator_breaks_a_lock_on_all_nodes() {
    let nodes = Nodes::three().await;
    let (locks, operator) = (nodes.locks().await, nodes.backend().await.unwrap());
    let guard = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    let wrong = Token::new(guard.token().get() + 1).unwrap();
    assert_eq!(operator.revoke(&name("a"), wrong).await.unwrap(), Revocation::NotHeld);
    assert_eq!(operator.revoke(&name("a"), guard.token()).await.unwrap(), Revocation::Revoked);
    assert!(operator.inspect(&name("a")).await.unwrap().is_none());
    assert!(tokio::time::timeout(redlock_support::PATIENCE, guard.lost()).await.is_ok());
}

#[tokio::test]
async fn counters_are_remembered_for_days_and_locks_for_their_ttl() {
    let nodes = Nodes::three().await;
    let guard = nodes.locks().await.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    eventually("all nodes have it", async || nodes.value(2, "a").await.is_some()).await;
    for node in 0..3 {
        let fence: i64 = nodes.raw(node, &["TTL", "{lock:a}:fence"]).await;
        let lock: i64 = nodes.raw(node, &["PTTL", "lock:a"]).await;
        assert!((600_000..=604_800).contains(&fence) && lock <= 1000, "{fence} {lock}");
        let counter: String = nodes.raw(node, &["GET", "{lock:a}:fence"]).await;
        assert_eq!(counter, guard.token().to_string());
    }
}

#[tokio::test]
async fn two_names_of_one_redis_are_refused() {
    let nodes = Nodes::new(2, &Config::redis());
    let port = nodes.node(0).address().port();
    let mut urls = nodes.config.nodes.clone();
    urls.push(format!("redis://localhost:{port}/"));
    let config = RedlockConfig { nodes: urls, ..nodes.config.clone() };
    let error = RedlockBackend::connect(config, clock()).await.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("two names of one Redis"), "{error}");
}

#[tokio::test]
async fn clients_with_another_max_ttl_are_refused() {
    let nodes = Nodes::three().await;
    let config = RedlockConfig { max_ttl: MAX_TTL * 2, ..nodes.config.clone() };
    let error = RedlockBackend::connect(config, clock()).await.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("max_ttl=1000ms"), "{error}");
    let too_long = nodes.locks().await.lock("a").ttl(MAX_TTL * 2).acquire().await.unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::InvalidArgument);
    assert!(too_long.to_string().contains("100ms to 1s"), "{too_long}");
}

#[tokio::test]
async fn scripts_that_a_node_forgot_are_taught_again() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap().release().await.unwrap();
    for node in 0..3 {
        let _: String = nodes.raw(node, &["SCRIPT", "FLUSH"]).await;
    }
    let guard = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn only_exclusive_locks_are_given_and_the_reason_is_said() {
    let nodes = Nodes::three().await;
    let backend = nodes.backend().await.unwrap();
    let shared = Claim { mode: Mode::Shared, ..claim("a") };
    let error = backend.try_acquire(&shared).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("nodes that disagree"), "{error}");
}
