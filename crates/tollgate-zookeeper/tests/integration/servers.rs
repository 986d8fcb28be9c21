//! What a ZooKeeper is asked for and what it says: rights, limits, what a lock costs, and what an examination finds.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{TTL, backend, backend_of, claim, config, configured, hosts, locks, secs, soon, until};
use futures_util::{StreamExt, TryStreamExt};
use tollgate_core::{Attempt, Backend, ErrorKind, Locks, Mode, Revocation, RevokeMode, Token};
use tollgate_testkit::engines::{self, Engine};
use tollgate_testkit::proxy::{LengthPrefixed, Proxy};
use tollgate_testkit::scale::scale;
use tollgate_zookeeper::{ZooKeeperConfig, ZooKeeperFence};
use zookeeper_client::{Acls, Client, CreateMode};

fn shared() -> &'static Engine {
    engines::shared(&config(1))
}

#[tokio::test]
async fn a_holder_that_lost_its_lock_cannot_write() {
    let engine = shared();
    let plain = Client::connect(&hosts(engine)).await.unwrap();
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    plain.mkdir("/fenced", &open).await.unwrap();
    plain.create("/fenced/total", b"0", &open).await.unwrap();
    plain.create("/fenced/draft", b"x", &open).await.unwrap();
    let config = configured(engine, "", "/fenced");
    let fence = ZooKeeperFence::new(config.clone()).unwrap();
    let locks = Locks::new(std::sync::Arc::new(backend_of(config).await.unwrap())).unwrap();
    let total = async || String::from_utf8(plain.get_data("/fenced/total").await.unwrap().0).unwrap();
    let old = locks.lock("total").ttl(secs(60)).acquire().await.unwrap();
    let stale = old.grant().clone();
    fence.guarded(&stale).unwrap().set("/total", "1").commit().await.unwrap();
    assert_eq!(locks.revoke_by_force("total", old.token()).await.unwrap(), Revocation::Revoked);
    let new = locks.lock("total").ttl(secs(60)).acquire().await.unwrap();
    // Between the two, also before the new holder has written anything.
    let refused = fence.guarded(&stale).unwrap().set("/total", "stale").commit().await.unwrap_err();
    assert_eq!((refused.kind(), total().await.as_str()), (ErrorKind::Lost, "1"));
    fence.guarded(new.grant()).unwrap().set("/total", "2").delete("/draft").commit().await.unwrap();
    assert_eq!(total().await, "2");
    let missing = fence.guarded(new.grant()).unwrap().set("/total", "3").delete("/draft").commit().await;
    let missing = missing.unwrap_err();
    assert_eq!((missing.kind(), total().await.as_str()), (ErrorKind::InvalidArgument, "2"), "{missing}");
    assert!(missing.to_string().contains("write 2"), "{missing}");
    new.release().await.unwrap();
    let refused = fence.guarded(&stale).unwrap().set("/total", "stale").commit().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost, "a free lock is not one's own");
    let permit = locks.lock("pool").permit(2).ttl(secs(60)).acquire().await.unwrap();
    assert_eq!(fence.node(permit.grant()).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn what_a_user_creates_is_that_user_s() {
    let engine = shared();
    let ann = backend_of(configured(engine, "ann:secret@", "/owned")).await.unwrap();
    let (held, wanted) = (claim("a"), claim("a"));
    let Attempt::Granted(grant) = ann.try_acquire(&held).await.unwrap() else { panic!("it is free") };
    for other in ["bob:secret@", "ann:wrong@", ""] {
        let other = backend_of(configured(engine, other, "/owned")).await.unwrap();
        let denied = other.try_acquire(&wanted).await.unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert!(denied.to_string().contains("USER:PASSWORD"), "{denied}");
        // Nothing was made, and nothing is to be looked for where we may not look.
        other.withdraw(&wanted).await.unwrap();
        assert_eq!(
            other.revoke(&held.name, grant.token, RevokeMode::Force).await.unwrap_err().kind(),
            ErrorKind::Denied
        );
    }
    let again = backend_of(configured(engine, "ann:secret@", "/owned")).await.unwrap();
    assert!(matches!(again.try_acquire(&wanted).await.unwrap(), Attempt::Busy(_)));
    ann.release(&grant).await.unwrap();
}

#[tokio::test]
async fn a_ttl_that_sessions_do_not_have_is_refused_with_what_they_have() {
    let engine = engines::private(&tollgate_testkit::engines::Config::zookeeper()).unwrap();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let range = locks.capabilities().ttl;
    assert_eq!((range.min, range.max), (Duration::from_millis(1200), secs(4)));
    let refused = locks.lock("a").ttl(secs(5)).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("1.2s to 4s"), "{refused}");
    // With the tick that is assumed where none is said no ttl is left.
    let config = ZooKeeperConfig::from_url(&format!("zookeeper://{}", hosts(&engine))).unwrap();
    let none = backend_of(config).await.map(drop).unwrap_err();
    assert!(none.kind() == ErrorKind::InvalidArgument && none.to_string().contains("?tick="), "{none}");
}

#[tokio::test]
async fn tokens_go_on_above_a_floor_for_everybody() {
    let engine = engines::private(&config(1)).unwrap();
    let mine = backend(&hosts(&engine)).await.unwrap();
    let theirs = locks(&hosts(&engine)).await.unwrap();
    let token = async || {
        let guard = theirs.lock("a").ttl(secs(60)).acquire().await.unwrap();
        let seen = theirs.inspect("a").await.unwrap().unwrap().holders[0].token;
        assert_eq!(seen, Some(guard.token()));
        let token = guard.token();
        guard.release().await.unwrap();
        token.get()
    };
    let before = token().await;
    for floor in [1_000_000_000, 5_000_000_000, 2_000_000_000] {
        mine.raise_floor(Token::new(floor).unwrap()).await.unwrap();
        let after = token().await;
        assert!(after > floor && after > before && token().await > after, "{after} after {floor}");
    }
    assert!(token().await < 6_000_000_000);
}

#[tokio::test]
async fn locks_within_locks_are_listed_with_their_own_names() {
    let engine = engines::private(&config(1)).unwrap();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let names = ["a", "a/b", "a/b/c", "a//", "/", ".", "..", "%", "a%2Fb", "lock-0000000001", "😀", "ab"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.lock(name).ttl(secs(60)).acquire().await.unwrap());
    }
    let listed = async |prefix: &str| -> BTreeSet<String> {
        let states: Vec<_> = locks.list(prefix).try_collect().await.unwrap();
        states.into_iter().map(|state| state.name.to_string()).collect()
    };
    assert_eq!(listed("").await, names.iter().map(ToString::to_string).collect());
    let within = ["a/b", "a/b/c", "a//"].map(String::from);
    assert_eq!(listed("a/").await, BTreeSet::from(within));
    assert_eq!(listed("nobody").await, BTreeSet::new());
}

#[tokio::test]
async fn a_folder_that_may_not_be_read_hides_no_other() {
    let engine = engines::private(&config(1)).unwrap();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let mut guards = Vec::new();
    for name in ["a", "c/x", "z"] {
        guards.push(locks.lock(name).ttl(secs(60)).acquire().await.unwrap());
    }
    let ann = backend_of(configured(&engine, "ann:secret@", "/")).await.unwrap();
    for name in ["b", "/"] {
        assert!(matches!(ann.try_acquire(&claim(name)).await.unwrap(), Attempt::Granted(_)));
    }
    let seen: Vec<_> = locks.list("").collect().await;
    let (read, unread): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.is_ok());
    let read: BTreeSet<_> = read.into_iter().map(|state| state.unwrap().name.to_string()).collect();
    assert_eq!(read, BTreeSet::from(["a", "c/x", "z"].map(String::from)));
    let unread: BTreeSet<_> = unread
        .into_iter()
        .map(|error| {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            error.lock().unwrap().to_string()
        })
        .collect();
    assert_eq!(unread, BTreeSet::from(["b", "/"].map(String::from)));
    let mut events = locks.events("");
    // Each is told of once.
    for _ in 0..2 {
        let error = soon("it is told of", events.next()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    let (token, last) = (guards[2].token(), guards.remove(2));
    last.release().await.unwrap();
    let event = soon("the end is told of", events.next()).await.unwrap().unwrap();
    assert_eq!((event.name.as_str(), event.token), ("z", token));
    // The folder of all hides all.
    let closed = backend_of(configured(&engine, "ann:secret@", "/closed")).await.unwrap();
    assert!(matches!(closed.try_acquire(&claim("a")).await.unwrap(), Attempt::Granted(_)));
    let other = backend_of(configured(&engine, "", "/closed")).await.unwrap();
    let seen: Vec<_> = other.list("").collect().await;
    assert_eq!(seen.len(), 1);
    let error = seen[0].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Denied, None));
}

/// What passes through `proxy` for each hand-over of one lock through a queue of so many.
async fn packets_per_hand_over(proxy: &Proxy, locks: &Locks, direct: &Locks, waiters: usize) -> f64 {
    let name = format!("queue/{waiters}");
    let held = locks.lock(&name).ttl(secs(60)).acquire().await.unwrap();
    let mut queue = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        let request = locks.lock(&name).ttl(secs(60));
        queue.spawn(async move { request.acquire().await.unwrap().release().await.unwrap() });
    }
    until("all wait", async || {
        direct.inspect(&name).await.unwrap().is_some_and(|state| state.waiters.len() == waiters)
    })
    .await;
    // Every watch is in place.
    tokio::time::sleep(secs(1)).await;
    proxy.take_counts();
    held.release().await.unwrap();
    while let Some(done) = queue.join_next().await {
        done.unwrap();
    }
    let counts = proxy.take_counts();
    (counts.requests + counts.pushes) as f64 / waiters as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_as_many_packets_however_many_wait() {
    let engine = engines::private(&config(1)).unwrap();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let direct = locks(&hosts(&engine)).await.unwrap();
    let through = locks(&proxy.address().to_string()).await.unwrap();
    let few = packets_per_hand_over(&proxy, &through, &direct, 20).await;
    let many = packets_per_hand_over(&proxy, &through, &direct, scale(300, 1000)).await;
    println!("packets for each hand-over: {few:.1} with few waiters, {many:.1} with many");
    assert!(many <= few * 1.2 && many < 6.0, "{few:.1} packets became {many:.1}");
}

#[tokio::test]
async fn a_folder_of_another_kind_is_left_alone() {
    let engine = engines::private(&config(1)).unwrap();
    let plain = Client::connect(&hosts(&engine)).await.unwrap();
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    plain.mkdir("/locks/a", &open).await.unwrap();
    for other in ["readme", "lock-1", "x__lock__0000000001", "config"] {
        plain.create(&format!("/locks/a/{other}"), b"mine", &open).await.unwrap();
    }
    let locks = locks(&hosts(&engine)).await.unwrap();
    assert_eq!(locks.inspect("a").await.unwrap(), None);
    let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
    let state = locks.inspect("a").await.unwrap().unwrap();
    assert_eq!((state.holders.len(), state.holders[0].mode, state.waiters.len()), (1, Mode::Exclusive, 0));
    guard.release().await.unwrap();
    assert_eq!(plain.list_children("/locks/a").await.unwrap().len(), 4);
}
