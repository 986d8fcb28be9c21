//! Queues: who is told of what, places that somebody deletes, permits that move, a thousand who want in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{backend_of, claim, configured, hosts, locks, one, secs, soon, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_core::{Attempt, Backend, Claim, Clock, Deadline, ErrorKind, Release};
use tollgate_testkit::clock::JumpingClock;
use tollgate_testkit::crowd::pass_one_by_one;
use tollgate_testkit::proxy::{Deed, LengthPrefixed, Proxy, Which};
use tollgate_zookeeper::{Access, ZooKeeperBackend};

#[tokio::test]
async fn a_place_that_somebody_deletes_is_taken_again_at_the_end() {
    let engine = one();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let children = async || plain.list_children("/locks/queue/a").await.unwrap();
    let request = || locks.lock("queue/a").ttl(secs(60));
    let held = request().acquire().await.unwrap();
    let first = children().await.remove(0);
    let waiting = tokio::spawn(request().acquire());
    until("it waits", async || children().await.len() == 2).await;
    let deleted = children().await.into_iter().find(|node| *node != first).unwrap();
    // Long enough that it hears of what is before it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    plain.delete(&format!("/locks/queue/a/{deleted}"), None).await.unwrap();
    until("it has another place", async || {
        let now = children().await;
        now.len() == 2 && !now.contains(&deleted)
    })
    .await;
    assert_eq!(held.release().await.unwrap(), Release::Released);
    let guard = soon("it is in", waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_place_that_is_deleted_just_before_the_last_one_leaves_lets_nobody_in() {
    let engine = one();
    let locks = locks(&hosts(&engine)).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let children = async || plain.list_children("/locks/queue/b").await.unwrap();
    let request = || locks.lock("queue/b").ttl(secs(60));
    let mut held = request().acquire().await.unwrap();
    for _ in 0..30 {
        let before = children().await;
        let waiting = tokio::spawn(request().acquire());
        until("it waits", async || children().await.len() == 2).await;
        let place = children().await.into_iter().find(|node| !before.contains(node)).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        plain.delete(&format!("/locks/queue/b/{place}"), None).await.unwrap();
        held.release().await.unwrap();
        held = soon("it is in", waiting).await.unwrap().unwrap();
        let now = children().await;
        assert!(now.len() == 1 && !now.contains(&place), "it holds the lock by {place}; there is {now:?}");
    }
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_permit_that_moves_before_it_is_watched_wakes_the_next_all_the_same() {
    let engine = one();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let locks = locks(&proxy.address().to_string()).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let open = zookeeper_client::Acls::anyone_all();
    plain.mkdir("/locks/a", &zookeeper_client::CreateMode::Persistent.with_acls(open)).await.unwrap();
    let mut permits = Vec::new();
    for tag in ["a", "b", "c"] {
        let start = format!("/locks/a/{}-p2-lock-", tag.repeat(32));
        let options = zookeeper_client::CreateMode::EphemeralSequential.with_acls(open);
        let (_, number) = plain.create(&start, b"{}", &options).await.unwrap();
        permits.push(format!("{start}{number}"));
    }
    // Two are in, and the third waits. The fourth is about to watch it.
    let watched = permits[2].clone().into_bytes();
    let names_it = move |frame: &[u8]| frame.windows(watched.len()).any(|part| part == watched);
    let held = proxy.on(Which::matching(names_it), Deed::Hold);
    let waiting = tokio::spawn(locks.lock("a").ttl(secs(30)).permit(2).acquire());
    soon("it is about to watch the third", held.caught()).await;
    plain.delete(&permits[0], None).await.unwrap();
    plain.set_data(&permits[2], b"{}", None).await.unwrap();
    held.let_go();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "three were in");
    plain.delete(&permits[1], None).await.unwrap();
    // Long before it would look again by itself.
    let woken = tokio::time::timeout(secs(5), waiting).await.expect("nobody told it");
    assert_eq!(woken.unwrap().unwrap().release().await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_of_one_process_are_never_in_together() {
    let engine = one();
    let locks = locks(&hosts(&engine)).await.unwrap();
    pass_one_by_one(&locks, "one", 1000).await;
}

#[tokio::test]
async fn who_waits_for_a_claim_that_it_may_not_read_is_told_so() {
    let engine = one();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    let open = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    plain.mkdir("/locks/a", &open).await.unwrap();
    let mut secret = configured(&engine, "ann:secret@", "/");
    secret.access = Access::Closed;
    let owner = backend_of(secret).await.unwrap();
    let Attempt::Granted(held) = owner.try_acquire(&claim("a")).await.unwrap() else { panic!("it is free") };
    let other = locks(&hosts(&engine)).await.unwrap();
    let error = soon("it is told", other.lock("a").ttl(secs(30)).acquire()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(owner.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_stopped_while_it_waited_is_in_with_time_to_work() {
    let engine = one();
    let (clock, tick) = (JumpingClock::new(), secs(1));
    let ttl = tick * 10;
    let mut config = configured(&engine, "", "/");
    config.tick = tick;
    let mine = Arc::new(ZooKeeperBackend::connect(config, Arc::new(clock.clone())).await.unwrap());
    let theirs = locks(&hosts(&engine)).await.unwrap();
    let held = theirs.lock("a").ttl(secs(60)).acquire().await.unwrap();
    let wanted = Claim { ttl, ..claim("a") };
    let waiting = tokio::spawn({
        let (mine, wanted) = (mine.clone(), wanted.clone());
        async move { mine.acquire(&wanted).await }
    });
    until("it waits", async || {
        theirs.inspect("a").await.unwrap().is_some_and(|state| state.waiters.len() == 1)
    })
    .await;
    tokio::time::sleep(tick * 3).await;
    // Its last proof of life is a while ago now, and not too long.
    clock.jump(tick * 5);
    held.release().await.unwrap();
    let grant = tokio::time::timeout(secs(20), waiting).await.unwrap().unwrap().unwrap();
    let Deadline::At(end) = grant.deadline else { panic!("{:?}", grant.deadline) };
    let left = end.since(clock.now());
    assert!(left >= ttl / 2, "only {left:?} of {ttl:?} are left");
    mine.release(&grant).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_share_do_not_all_look_when_somebody_else_may_go() {
    let engine = one();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let (direct, mine) =
        (locks(&hosts(&engine)).await.unwrap(), locks(&proxy.address().to_string()).await.unwrap());
    let [first, second] = [(); 2].map(|()| direct.lock("a").ttl(secs(60)));
    let first = first.acquire().await.unwrap();
    let second = tokio::spawn(second.acquire());
    let waiters = async || direct.inspect("a").await.unwrap().map_or(0, |state| state.waiters.len());
    until("the second waits", async || waiters().await == 1).await;
    let readers: Vec<_> =
        (0..20).map(|_| tokio::spawn(mine.lock("a").shared().ttl(secs(60)).acquire())).collect();
    until("all wait", async || waiters().await == 21).await;
    // Until they are sure that they will be told.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    proxy.take_counts();
    first.release().await.unwrap();
    let second = soon("the second is in", second).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = proxy.take_counts().requests;
    assert!(asked < 10, "they asked {asked} times");
    second.release().await.unwrap();
    for reader in readers {
        soon("all are in", reader).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A way to a server that makes its leader deny what it has: checks for nodes of claims arrive with another name.
async fn haunted(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, accepted) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    tokio::spawn({
        let accepted = accepted.clone();
        async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (mut requests, mut replies) = client.into_split();
                let (mut answers, mut sends) = TcpStream::connect(server).await.unwrap().into_split();
                tokio::spawn(async move { tokio::io::copy(&mut answers, &mut replies).await });
                tokio::spawn(async move {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(many @ 1..) = requests.read(&mut bytes).await {
                        let request = &mut bytes[..many];
                        let name = request.windows(8).position(|part| part == b"-x-lock-");
                        if let Some(at) =
                            name.filter(|_| crate::support::wire::opcode(request) == Some(MULTI))
                        {
                            request[at] = b'+';
                        }
                        sends.write_all(request).await.unwrap();
                    }
                });
            }
        }
    });
    (address, accepted)
}

/// What a check is a part of.
const MULTI: i32 = 14;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shows_a_claim_that_its_leader_has_not_is_left() {
    let engine = one();
    let (address, accepted) = haunted(engine.address()).await;
    let (theirs, mine) = (locks(&hosts(&engine)).await.unwrap(), locks(&address.to_string()).await.unwrap());
    let held = theirs.lock("a").ttl(secs(60)).acquire().await.unwrap();
    let waiting = tokio::spawn(mine.lock("a").ttl(secs(60)).acquire());
    tokio::time::sleep(secs(10)).await;
    let before = accepted.load(Ordering::SeqCst);
    until("it goes on over another connection", async || accepted.load(Ordering::SeqCst) > before).await;
    assert!(!waiting.is_finished(), "it is not in for that");
    held.release().await.unwrap();
    soon("it is in", waiting).await.unwrap().unwrap().release().await.unwrap();
}
