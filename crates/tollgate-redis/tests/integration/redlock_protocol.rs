//! Redlock's own promises on nodes that are well, but do not agree.

use std::sync::Arc;
use std::time::Duration;

use crate::redlock_support::{MAX_TTL, Nodes, clock, eventually};
use tollgate_core::{
    Attempt, Backend, Claim, ErrorKind, Extension, LockName, LossCause, Mode, Release, Revocation,
    RevokeMode, Token,
};
use tollgate_redis::{RedlockBackend, RedlockConfig, redlock_hash_of, redlock_init};
use tollgate_testkit::clock::JumpingClock;
use tollgate_testkit::engines::Config;

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
        let _: u64 = nodes.raw(node, &["ZADD", "{lock:a}:fence", &counter, "f"]).await;
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
    let backend = nodes.backend().await.unwrap();
    let pass = async |lock: String| {
        let Attempt::Granted(grant) = backend.try_acquire(&claim(&lock)).await.unwrap() else {
            panic!("a free lock was busy")
        };
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    };
    // After the first start all nodes are ahead of the clocks: the first token tells how far.
    pass("first".to_owned()).await;
    let _: String = nodes.raw(0, &["CONFIG", "RESETSTAT"]).await;
    for round in 0..100 {
        pass(format!("own {round}")).await;
        pass("shared".to_owned()).await;
    }
    let stats: String = nodes.raw(0, &["INFO", "commandstats"]).await;
    let calls = |command: &str| -> u32 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    };
    // Taken by plain commands in one go, and given back by one script. Where that is not enough, scripts come in, and
    // one more to give back what was taken in vain. A majority decides, so the last node need not be asked to take.
    let (taken, scripts) = (calls("set"), calls("evalsha"));
    assert!((150..=200).contains(&taken), "{taken} of 200 passages began here");
    assert!((190..=210).contains(&scripts), "200 passages took {scripts} scripts on a node");
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

/// It may still be on its way over another connection when the same claim is tried again: a waiter does that whose nodes
/// were away. What it took back then would be a vote that was counted.
#[tokio::test]
async fn a_withdrawal_that_comes_late_leaves_what_the_same_claim_took_later() {
    let nodes = Nodes::three().await;
    let backend = nodes.backend().await.unwrap();
    let claim = claim("a");
    let taken = async || matches!(backend.try_acquire(&claim).await.unwrap(), Attempt::Granted(_));
    assert!(taken().await);
    let withdrawn = clock().now().as_nanos().to_string();
    backend.withdraw(&claim).await.unwrap();
    eventually("all nodes have heard of it", async || nodes.value(0, "a").await.is_none()).await;
    assert!(taken().await);
    eventually("this node took part", async || nodes.value(0, "a").await.is_some()).await;
    let (script, owner) = (redlock_hash_of("retract").unwrap(), claim.owner.to_hex());
    let late = async |moment: &str| -> u64 {
        nodes.raw(0, &["EVALSHA", script, "1", "lock:a", &owner, moment]).await
    };
    assert_eq!(late(&withdrawn).await, 0);
    assert!(nodes.value(0, "a").await.is_some(), "a vote was taken back that had been counted");
    assert_eq!(late(&clock().now().as_nanos().to_string()).await, 1);
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
    let lost = tokio::time::timeout(crate::redlock_support::PATIENCE, guard.lost()).await;
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
async fn the_token_that_is_seen_is_the_majoritys_though_it_answers_last() {
    let nodes = Nodes::three().await;
    let other = nodes.backend().await.unwrap();
    assert!(other.inspect(&name("b")).await.unwrap().is_none(), "it is connected to all");
    // Two stood at one token when it was granted, and one drew another a little later.
    for (node, token) in [(0, 7), (1, 7), (2, 9)] {
        let value = format!("{} {token} 5 {{}}", "a".repeat(32));
        let _: String = nodes.raw(node, &["SET", "lock:a", &value, "PX", "60000"]).await;
    }
    nodes.node(0).pause();
    let looking = tokio::spawn(async move { other.inspect(&name("a")).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    nodes.node(0).resume();
    let state = looking.await.unwrap().unwrap().expect("it is held");
    assert_eq!(state.holders[0].token, Some(Token::new(7).unwrap()));
}

#[tokio::test]
async fn an_operator_breaks_a_lock_on_all_nodes() {
    let nodes = Nodes::three().await;
    let (locks, operator) = (nodes.locks().await, nodes.backend().await.unwrap());
    let guard = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    let wrong = Token::new(guard.token().get() + 1).unwrap();
    let force = RevokeMode::Force;
    assert_eq!(operator.revoke(&name("a"), wrong, force).await.unwrap(), Revocation::NotHeld);
    assert_eq!(operator.revoke(&name("a"), guard.token(), force).await.unwrap(), Revocation::Revoked);
    assert!(operator.inspect(&name("a")).await.unwrap().is_none());
    let lost = tokio::time::timeout(crate::redlock_support::PATIENCE, guard.lost()).await;
    assert_eq!(lost, Ok(LossCause::Revoked));
}

#[tokio::test]
async fn a_node_that_missed_that_a_lock_was_revoked_does_not_keep_it_alive() {
    let nodes = Nodes::three().await;
    let (locks, operator) = (nodes.locks().await, nodes.backend().await.unwrap());
    let guard = locks.lock("a").ttl(MAX_TTL).no_renew().acquire().await.unwrap();
    let asked = operator.revoke(&name("a"), guard.token(), RevokeMode::Ask).await.unwrap();
    assert_eq!(asked, Revocation::Pending);
    eventually("the node is unmarked", async || nodes.raw::<i64>(0, &["DEL", "{lock:a}:revoked"]).await == 1)
        .await;
    let holder = nodes.backend().await.unwrap();
    let renewed = holder.extend(guard.grant(), MAX_TTL, None).await.unwrap();
    assert_eq!(renewed, Extension::Lost { cause: LossCause::Revoked });
    assert!(operator.inspect(&name("a")).await.unwrap().is_some(), "it is the holder's until it leaves");
    guard.release().await.unwrap();
    assert!(operator.inspect(&name("a")).await.unwrap().is_none());
}

#[tokio::test]
async fn counters_are_remembered_for_days_and_locks_for_their_ttl() {
    let nodes = Nodes::three().await;
    let guard = nodes.locks().await.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    eventually("all nodes have it", async || nodes.value(2, "a").await.is_some()).await;
    for node in 0..3 {
        let fence: i64 = nodes.raw(node, &["TTL", "{lock:a}:fence"]).await;
        let lock: i64 = nodes.raw(node, &["PTTL", "lock:a"]).await;
        assert!((604_700..=608_400).contains(&fence) && lock <= 1000, "{fence} {lock}");
        let counter: f64 = nodes.raw(node, &["ZSCORE", "{lock:a}:fence", "f"]).await;
        assert_eq!(counter, guard.token().get() as f64);
    }
}

#[tokio::test]
async fn counters_in_use_are_remembered_anew_and_one_that_was_lost_ends_some_day_too() {
    let nodes = Nodes::three().await;
    let jumping = JumpingClock::new();
    let backend =
        Arc::new(RedlockBackend::connect(nodes.config.clone(), Arc::new(jumping.clone())).await.unwrap());
    let pass = async || {
        let Attempt::Granted(grant) = backend.try_acquire(&claim("a")).await.unwrap() else {
            panic!("a free lock was busy")
        };
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        // Those who were not waited for have done it, too.
        for node in 0..3 {
            eventually("nobody has it", async || nodes.value(node, "a").await.is_none()).await;
        }
    };
    let left = async |node| nodes.raw::<i64>(node, &["TTL", "{lock:a}:fence"]).await;
    pass().await;
    // Used more often than once an hour.
    for _ in 0..2 {
        for node in 0..3 {
            let _: u64 = nodes.raw(node, &["EXPIRE", "{lock:a}:fence", "5000"]).await;
        }
        jumping.jump(Duration::from_secs(40 * 60));
        pass().await;
    }
    for node in 0..3 {
        assert!(left(node).await > 7 * 24 * 3600, "node {node} would forget it in {} s", left(node).await);
    }
    for _ in 0..3 {
        let _: u64 = nodes.raw(1, &["DEL", "{lock:a}:fence"]).await;
        pass().await;
        assert_ne!(left(1).await, -1, "it would stay for ever");
    }
    // Sooner or later the node is among the first to answer, and then it is given another.
    eventually("it has a counter again", async || {
        pass().await;
        left(1).await > 7 * 24 * 3600
    })
    .await;
}

#[tokio::test]
async fn a_counter_at_its_end_is_named() {
    let nodes = Nodes::three().await;
    let backend = nodes.backend().await.unwrap();
    let refused = backend.raise_floor(&name("a"), Token::MAX).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    for node in 0..3 {
        let _: u64 = nodes.raw(node, &["ZADD", "{lock:a}:fence", &Token::MAX.to_string(), "f"]).await;
    }
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("{lock:a}:fence"), "{error}");
    for node in 0..3 {
        eventually("nobody has it", async || nodes.value(node, "a").await.is_none()).await;
    }
}

#[tokio::test]
async fn locks_on_nodes_without_memory_are_renewed() {
    let nodes = Nodes::three().await;
    let guard = nodes.locks().await.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    for node in 0..3 {
        let _: String = nodes.raw(node, &["CONFIG", "SET", "maxmemory", "1"]).await;
    }
    tokio::time::sleep(2 * MAX_TTL).await;
    guard.check().expect("it is renewed");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
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
    assert!(error.to_string().contains("are the same Redis server"), "{error}");
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
