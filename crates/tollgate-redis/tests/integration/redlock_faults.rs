//! Redlock on nodes that are killed, stopped, emptied, restarted and put on another clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::redlock_support::{MAX_TTL, Nodes, PATIENCE, clock, eventually};
use tollgate_core::{ErrorKind, LockName, Locks, Mode, Release, Token};
use tollgate_redis::RedlockBackend;
use tollgate_testkit::engines::{Config, Data};
use tollgate_testkit::history::History;
use tollgate_testkit::proxy::{Direction, Proxy, Resp};

/// How long a node may not answer before it is set aside.
const NODE_PATIENCE: Duration = Duration::from_secs(1);

/// Takes a lock and gives it back, so many times; how long that took, and the last token.
async fn passages(locks: &Locks, name: &str, count: usize) -> (Duration, Token) {
    let started = Instant::now();
    let mut last = Token::MIN;
    for _ in 0..count {
        let guard = locks.lock(name).ttl(MAX_TTL).wait(PATIENCE).acquire().await.unwrap();
        assert!(guard.token() > last, "{} came after {last}", guard.token());
        last = guard.token();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    (started.elapsed(), last)
}

/// Nodes that did not answer once are not waited for again.
fn assert_few_time_outs(took: Duration, count: u32) {
    assert!(took < NODE_PATIENCE * count / 4, "{count} passages took {took:?}: a time-out each");
}

#[tokio::test]
async fn a_dead_minority_costs_no_time_out() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    let (_, before) = passages(&locks, "a", 5).await;
    nodes.node(1).kill();
    let (took, after) = passages(&locks, "a", 50).await;
    assert_few_time_outs(took, 50);
    assert!(after > before);
    // Somebody who comes later does not wait for it, either.
    let (took, _) = passages(&nodes.locks().await, "a", 50).await;
    assert_few_time_outs(took, 50);
}

#[tokio::test]
async fn a_stopped_minority_costs_no_time_out_and_comes_back() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    passages(&locks, "a", 5).await;
    nodes.node(0).pause();
    let (took, before) = passages(&locks, "a", 50).await;
    assert_few_time_outs(took, 50);
    nodes.node(0).resume();
    // What was sent to it while it was stopped ends with its ttl; then it can stand in for another.
    nodes.node(2).kill();
    let (_, after) = passages(&locks, "a", 5).await;
    assert!(after > before);
}

#[tokio::test]
async fn somebody_in_the_way_and_a_stopped_node_cost_one_time_out_at_most() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    passages(&locks, "a", 1).await;
    // One node is free, one is taken, and the third decides.
    let _: String = nodes.raw(0, &["SET", "lock:b", "somebody else", "PX", "60000"]).await;
    nodes.node(2).pause();
    let started = Instant::now();
    for _ in 0..20 {
        let error = locks.lock("b").ttl(MAX_TTL).try_acquire().await.unwrap_err();
        assert!(error.to_string().contains(&nodes.label(2)), "{error}");
    }
    assert_few_time_outs(started.elapsed(), 20);
    assert_eq!(nodes.value(1, "b").await, None, "nothing is left of what was refused");
    nodes.node(2).resume();
}

#[tokio::test]
async fn a_dead_majority_fails_fast_and_says_who_and_why() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    let (_, before) = passages(&locks, "a", 1).await;
    nodes.node(0).kill();
    nodes.node(2).kill();
    // The first call may find out the hard way what became of its request.
    let _ = locks.lock("a").ttl(MAX_TTL).try_acquire().await;
    let started = Instant::now();
    for _ in 0..20 {
        let error = locks.lock("a").ttl(MAX_TTL).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(said.contains(&nodes.label(0)) && said.contains(&nodes.label(2)), "{said}");
        assert!(!said.contains(&nodes.label(1)) && said.contains("reached"), "{said}");
    }
    assert_few_time_outs(started.elapsed(), 20);
    nodes.restart(0, Data::Lost);
    nodes.restart(2, Data::Lost);
    nodes.until_it_votes(2, &locks).await;
    let (_, after) = passages(&locks, "a", 3).await;
    assert!(after > before);
}

#[tokio::test]
async fn a_stopped_majority_is_waited_for_no_longer_than_the_patience() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    passages(&locks, "a", 1).await;
    nodes.node(0).pause();
    nodes.node(1).pause();
    for _ in 0..3 {
        let started = Instant::now();
        let error = locks.lock("a").ttl(MAX_TTL).try_acquire().await.unwrap_err();
        let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
        assert!(kinds.contains(&error.kind()), "{error}");
        // The request, and after it the withdrawal that the caller waits a second for.
        assert!(started.elapsed() < NODE_PATIENCE * 4, "{:?}", started.elapsed());
    }
    nodes.node(0).resume();
    nodes.node(1).resume();
    let (_, _) = passages(&locks, "a", 3).await;
}

#[tokio::test]
async fn a_node_that_comes_back_empty_votes_only_when_what_it_forgot_has_ended() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    let guard = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    nodes.restart(1, Data::Lost);
    let restarted = Instant::now();
    // Were it to vote, it and the third would be a majority as soon as that one loses its data, too.
    let other = nodes.locks().await;
    assert!(other.lock("a").ttl(MAX_TTL).try_acquire().await.unwrap().is_none());
    assert!(!nodes.votes(1).await);
    nodes.until_it_votes(1, &other).await;
    assert!(restarted.elapsed() >= MAX_TTL, "it voted after {:?}", restarted.elapsed());
    guard.check().expect("a majority kept it all the time");
    let token = guard.token();
    guard.release().await.unwrap();
    // Now it can stand in for another, and knows nothing of tokens that are not larger.
    nodes.node(0).kill();
    let (_, next) = passages(&other, "a", 3).await;
    assert!(next > token);
}

#[tokio::test]
async fn a_node_that_is_emptied_while_it_runs_waits_as_one_that_was_restarted() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    passages(&locks, "a", 1).await;
    tokio::time::sleep(MAX_TTL * 3).await;
    let _: String = nodes.raw(1, &["FLUSHALL"]).await;
    let emptied = Instant::now();
    nodes.until_it_votes(1, &locks).await;
    assert!(emptied.elapsed() >= MAX_TTL, "it voted after {:?}", emptied.elapsed());
}

#[tokio::test]
async fn a_node_that_kept_its_data_goes_on_with_its_tokens() {
    let nodes = Nodes::ready(3, &Config::durable_redis()).await;
    let locks = nodes.locks().await;
    let guard = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    nodes.restart(0, Data::Kept);
    assert!(!nodes.votes(0).await, "another run id is another run");
    nodes.until_it_votes(0, &locks).await;
    guard.check().unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    nodes.node(1).kill();
    let (_, next) = passages(&locks, "a", 3).await;
    assert!(next > token);
}

#[tokio::test]
async fn nodes_that_all_forgot_find_together_again() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    let (_, before) = passages(&locks, "a", 5).await;
    for node in 0..3 {
        nodes.restart(node, Data::Lost);
    }
    assert!(locks.lock("a").ttl(MAX_TTL).try_acquire().await.is_err(), "nobody votes");
    for node in 0..3 {
        nodes.until_it_votes(node, &locks).await;
    }
    let (_, after) = passages(&locks, "a", 3).await;
    assert!(after > before);
}

#[tokio::test]
async fn new_nodes_say_how_long_they_wait_and_what_to_do() {
    let mut nodes = Nodes::new(3, &Config::redis());
    nodes.config.max_ttl = Duration::from_secs(3600);
    let locks = nodes.locks().await;
    eventually("they say it", async || {
        let error = locks.lock("a").ttl(MAX_TTL).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let said = error.to_string();
        said.contains("does not vote for another 3") && said.contains("`tollgate redlock-init URL`")
    })
    .await;
}

#[tokio::test]
async fn new_nodes_begin_by_themselves() {
    let nodes = Nodes::new(3, &Config::redis());
    let locks = nodes.locks().await;
    eventually("they begin", async || {
        locks.lock("a").ttl(MAX_TTL).try_acquire().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

#[tokio::test]
async fn five_nodes_outlive_two() {
    let nodes = Nodes::ready(5, &Config::redis()).await;
    let locks = nodes.locks().await;
    let (_, before) = passages(&locks, "a", 3).await;
    nodes.node(0).kill();
    nodes.node(3).kill();
    let (took, after) = passages(&locks, "a", 30).await;
    assert_few_time_outs(took, 30);
    assert!(after > before);
    nodes.restart(0, Data::Lost);
    nodes.until_it_votes(0, &locks).await;
    nodes.node(1).kill();
    let (_, last) = passages(&locks, "a", 3).await;
    assert!(last > after);
}

#[tokio::test]
async fn a_minority_whose_clock_jumps_gives_nobody_a_lock_that_is_held() {
    let nodes = Nodes::ready(3, &Config::redis().own_clock()).await;
    let locks = nodes.locks().await;
    let other = nodes.locks().await;
    let guard = locks.lock("a").ttl(MAX_TTL).acquire().await.unwrap();
    nodes.node(0).set_clock_ahead(Duration::from_secs(3600));
    eventually("it forgets the lock there", async || {
        let busy = other.lock("a").ttl(MAX_TTL).try_acquire().await.unwrap().is_none();
        assert!(busy, "one clock of three is enough to get in");
        let left: i64 = nodes.raw(0, &["PTTL", "lock:a"]).await;
        // Gone, or given back to it by a renewal since.
        left != -1
    })
    .await;
    tokio::time::sleep(MAX_TTL).await;
    guard.check().expect("a majority kept it all the time");
    let token = guard.token();
    guard.release().await.unwrap();
    let (_, ahead) = passages(&locks, "a", 3).await;
    assert!(ahead > token);
    // A token is a time only as long as nothing goes wrong: an hour back it still rises.
    for node in 0..3 {
        nodes.node(node).set_clock_back(Duration::from_secs(3600));
    }
    let (_, back) = passages(&locks, "a", 3).await;
    assert!(back > ahead);
}

/// Two clients on one lock while one node after the other is killed and comes back empty: no update is lost, no token
/// comes twice, and none comes late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_in_turn_break_no_promise() {
    let nodes = Arc::new(Nodes::three().await);
    let folder = std::env::temp_dir().join(format!("tollgate-redlock-{}", std::process::id()));
    std::fs::write(&folder, "0").unwrap();
    let history = History::new(clock());
    let over = Arc::new(AtomicBool::new(false));
    let hammer = |client: usize| {
        let (nodes, folder, history, over) = (nodes.clone(), folder.clone(), history.clone(), over.clone());
        tokio::spawn(async move {
            let (locks, name) = (nodes.locks().await, LockName::new("counter").unwrap());
            let mut counted = 0;
            while !over.load(Ordering::Acquire) {
                let asked = history.ask(&name, Mode::Exclusive);
                let request = locks.lock(&name).ttl(MAX_TTL).wait(Duration::from_secs(5));
                let Ok(Some(guard)) = request.try_acquire().await else { continue };
                let held = asked.granted(guard.token());
                let count: u64 = std::fs::read_to_string(&folder).unwrap().parse().unwrap();
                tokio::time::sleep(Duration::from_millis(1 + client as u64)).await;
                // No time may pass between the check and the write: nothing here refuses a stale one.
                if guard.remaining().is_some_and(|left| left > Duration::from_millis(200)) {
                    std::fs::write(&folder, (count + 1).to_string()).unwrap();
                    counted += 1;
                }
                if guard.check().is_ok() {
                    held.still();
                }
                let _ = guard.release().await;
            }
            counted
        })
    };
    let clients = [hammer(1), hammer(2)];
    let watcher = nodes.locks().await;
    for node in [0, 1, 2, 0] {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let restarted = {
            let nodes = nodes.clone();
            tokio::task::spawn_blocking(move || nodes.restart(node, Data::Lost))
        };
        restarted.await.unwrap();
        nodes.until_it_votes(node, &watcher).await;
    }
    over.store(true, Ordering::Release);
    let mut counted = 0;
    for client in clients {
        counted += client.await.unwrap();
    }
    let written: u64 = std::fs::read_to_string(&folder).unwrap().parse().unwrap();
    std::fs::remove_file(&folder).unwrap();
    assert_eq!(written, counted, "an update was lost");
    assert!(history.len() > 50, "hardly anything was granted: {}", history.len());
    history.check();
}

#[tokio::test]
async fn a_node_that_always_answers_last_and_forgot_everything_votes_again() {
    let nodes = Nodes::three().await;
    let proxy = Proxy::start(nodes.node(2).address(), Resp);
    let mut config = nodes.config.clone();
    config.nodes[2] = format!("redis://{}/", proxy.address());
    let locks = Locks::new(Arc::new(RedlockBackend::connect(config, clock()).await.unwrap())).unwrap();
    proxy.delay(Direction::Replies, Duration::from_millis(30));
    let _: String = nodes.raw(2, &["FLUSHALL"]).await;
    eventually("it votes", async || {
        passages(&locks, "a", 3).await;
        nodes.votes(2).await
    })
    .await;
}

#[tokio::test]
async fn clients_that_live_for_a_moment_bring_a_node_back() {
    let nodes = Nodes::three().await;
    nodes.node(2).kill();
    nodes.restart(2, Data::Lost);
    eventually("it votes", async || {
        let locks = nodes.locks().await;
        passages(&locks, "a", 1).await;
        locks.close().await;
        nodes.votes(2).await
    })
    .await;
}

/// One node has the lock for another client, one is free, and the third could decide either way.
#[tokio::test]
async fn a_lock_is_not_busy_as_long_as_a_silent_node_could_make_a_majority() {
    let nodes = Nodes::three().await;
    let locks = nodes.locks().await;
    passages(&locks, "a", 1).await;
    let take = async |node| nodes.raw::<String>(node, &["SET", "lock:a", "another client's"]).await;
    take(0).await;
    nodes.node(2).pause();
    let attempt = async || locks.lock("a").ttl(MAX_TTL).try_acquire().await;
    let silent = [ErrorKind::Indeterminate, ErrorKind::Unavailable];
    for _ in 0..2 {
        let error = attempt().await.unwrap_err();
        assert!(silent.contains(&error.kind()), "{error}");
        assert!(error.to_string().contains(&nodes.label(2)), "{error}");
    }
    let waiting = locks.lock("a").ttl(MAX_TTL).wait(Duration::from_millis(1500)).try_acquire();
    let error = waiting.await.unwrap_err();
    assert!(silent.contains(&error.kind()), "{error}");
    // With two busy nodes no answer of the third matters.
    take(1).await;
    assert!(attempt().await.unwrap().is_none());
    let _: u64 = nodes.raw(1, &["DEL", "lock:a"]).await;
    // A claim without a limit waits until the third decides.
    let waiting = tokio::spawn(locks.lock("a").ttl(MAX_TTL).acquire());
    let since = Instant::now();
    while since.elapsed() < MAX_TTL {
        assert!(!waiting.is_finished(), "{:?}", waiting.await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    nodes.node(2).resume();
    let granted = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    granted.unwrap().check().unwrap();
}
