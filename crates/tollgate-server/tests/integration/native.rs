//! The native protocol, frame by frame, over streams in memory.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{LocalSet, spawn_local};
use tollgate_core::{LockName, Mode, OnDeadlock, OwnerId, Token};
use tollgate_embedded::durable::{Durability, Options, RedbStore};
use tollgate_proto::frame::{self, Call, ClaimCall, Gone, Hello, Lane, MAGIC, Refusal, Reply, VERSION, Who};
use tollgate_server::{TableService, native};

const TTL: Duration = Duration::from_secs(30);

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn owner(bits: u128) -> OwnerId {
    OwnerId::from_bits(bits)
}

fn acquire(bits: u128, waits: bool, ttl: Duration) -> Call<'static> {
    Call::Acquire(Box::new(ClaimCall {
        name: name(),
        owner: owner(bits),
        mode: Mode::Exclusive,
        waits,
        ttl,
        lock_delay: Duration::ZERO,
        party: None,
        on_deadlock: OnDeadlock::Timeout,
        who: Who { host: "web-1", pid: 17, ..Who::default() },
    }))
}

/// One connection, as its client sees it.
struct Peer {
    stream: DuplexStream,
    arrived: Vec<u8>,
    last: u32,
}

impl Peer {
    fn raw(service: &TableService) -> Self {
        let (stream, theirs) = duplex(1 << 20);
        spawn_local(native::serve(theirs, Vec::new(), service.clone()));
        Self { stream, arrived: Vec::new(), last: 0 }
    }

    /// A connection of the client with this id that has been greeted.
    async fn greeted(service: &TableService, client: u128) -> Self {
        let mut peer = Self::raw(service);
        peer.stream.write_all(&MAGIC).await.unwrap();
        peer.say(&Call::Hello(Hello { version: VERSION, client, lane: Lane::Caller })).await;
        peer.hears(|reply| assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}")).await;
        peer
    }

    /// Sends a call; its number.
    async fn say(&mut self, call: &Call<'_>) -> u32 {
        self.last += 1;
        let mut bytes = Vec::new();
        call.write(self.last, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
        self.last
    }

    /// The next frame; its number.
    async fn hears(&mut self, check: impl FnOnce(Reply<'_>)) -> u32 {
        loop {
            if let Some(length) = frame::first(&self.arrived).unwrap() {
                let (number, reply) = Reply::read(&self.arrived[..length]).unwrap();
                check(reply);
                self.arrived.drain(..length);
                return number;
            }
            assert_ne!(self.stream.read_buf(&mut self.arrived).await.unwrap(), 0, "the connection ended");
        }
    }

    async fn granted(&mut self) -> (Token, u32, Duration) {
        let mut granted = None;
        self.hears(|reply| match reply {
            Reply::Granted { token, call, lasts, .. } => granted = Some((token, call, lasts)),
            other => panic!("not granted: {other:?}"),
        })
        .await;
        granted.unwrap()
    }

    /// Whether the server ends the connection.
    async fn ends(&mut self) -> bool {
        self.stream.read_to_end(&mut self.arrived).await.is_ok()
    }
}

fn serve_with<W: Future<Output = ()>>(is_paused: bool, work: impl FnOnce(TableService) -> W) {
    let folder = tempfile::tempdir().unwrap();
    let options =
        Options { durability: Durability::Grace, token_floor: None, longest: Duration::from_secs(300) };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(is_paused).build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let store = RedbStore::open(&folder.path().join("locks.redb")).unwrap();
        let (service, running) = TableService::open(store, &options).unwrap();
        let work = async {
            work(service.clone()).await;
            service.stop();
        };
        let (ended, ()) = tokio::join!(running.run(), work);
        ended.unwrap();
    });
}

fn serve<W: Future<Output = ()>>(work: impl FnOnce(TableService) -> W) {
    serve_with(false, work);
}

#[test]
fn a_lock_is_taken_extended_and_released() {
    serve(async |service| {
        let mut peer = Peer::greeted(&service, 1).await;
        let call = peer.say(&acquire(1, false, TTL)).await;
        let (_, named, lasts) = peer.granted().await;
        assert_eq!((named, lasts), (call, TTL));
        let busy = peer.say(&acquire(2, false, TTL)).await;
        let number = peer.hears(|reply| assert!(matches!(reply, Reply::Busy { ahead: 1, .. }))).await;
        assert_eq!(number, busy);
        peer.say(&Call::Extend { name: name(), owner: owner(1), ttl: TTL * 2, who: None }).await;
        assert_eq!(peer.granted().await.2, TTL * 2);
        for again in [false, true] {
            peer.say(&Call::Release { name: name(), owner: owner(1) }).await;
            peer.hears(|reply| assert_eq!(reply, Reply::Released { again })).await;
        }
    });
}

#[test]
fn a_hand_over_counts_from_the_last_call_that_was_read() {
    serve(async |service| {
        let mut holder = Peer::greeted(&service, 1).await;
        let mut waiter = Peer::greeted(&service, 2).await;
        holder.say(&acquire(1, false, TTL)).await;
        holder.granted().await;
        waiter.say(&acquire(2, true, TTL)).await;
        waiter.hears(|reply| assert!(matches!(reply, Reply::Queued { ahead: 1, .. }))).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let pinged = std::time::Instant::now();
        let ping = waiter.say(&Call::Ping).await;
        waiter.hears(|reply| assert_eq!(reply, Reply::Pong)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        holder.say(&Call::Release { name: name(), owner: owner(1) }).await;
        let (_, named, lasts) = waiter.granted().await;
        assert_eq!(named, ping, "the ping was the last call that was read");
        let since_ping = lasts.checked_sub(TTL).unwrap();
        assert!(
            since_ping >= Duration::from_millis(90),
            "the lease began with the hand-over: {since_ping:?}"
        );
        assert!(since_ping <= pinged.elapsed(), "it counts from the ping: {since_ping:?}");
    });
}

#[test]
fn a_claim_keeps_its_place_when_its_connection_ends() {
    serve(async |service| {
        let mut holder = Peer::greeted(&service, 1).await;
        holder.say(&acquire(1, false, TTL)).await;
        holder.granted().await;
        let mut first = Peer::greeted(&service, 2).await;
        first.say(&acquire(2, true, TTL)).await;
        first.hears(|reply| assert!(matches!(reply, Reply::Queued { .. }))).await;
        let mut second = Peer::greeted(&service, 3).await;
        second.say(&acquire(3, true, TTL)).await;
        second.hears(|reply| assert!(matches!(reply, Reply::Queued { .. }))).await;
        drop(first);
        let mut first = Peer::greeted(&service, 2).await;
        first.say(&acquire(2, true, TTL)).await;
        first.hears(|reply| assert!(matches!(reply, Reply::Queued { ahead: 1, .. }), "{reply:?}")).await;
        // The end of its connection ends no grant either.
        drop(holder);
        let mut holder = Peer::greeted(&service, 1).await;
        holder.say(&Call::Release { name: name(), owner: owner(1) }).await;
        holder.hears(|reply| assert_eq!(reply, Reply::Released { again: false })).await;
        first.granted().await;
    });
}

#[test]
fn a_break_is_told_to_the_holder_alone() {
    serve(async |service| {
        let mut holder = Peer::greeted(&service, 1).await;
        let mut other = Peer::greeted(&service, 2).await;
        holder.say(&acquire(1, false, TTL)).await;
        let (token, _, _) = holder.granted().await;
        other.say(&Call::Break { name: name(), token, by_force: false }).await;
        other.hears(|reply| assert_eq!(reply, Reply::Asked)).await;
        let gone = Reply::Gone { owner: owner(1), cause: Gone::Revoked };
        assert_eq!(holder.hears(|reply| assert_eq!(reply, gone)).await, 0);
        other.say(&Call::Ping).await;
        other.hears(|reply| assert_eq!(reply, Reply::Pong, "another client heard of it")).await;
    });
}

#[test]
fn a_call_after_its_withdrawal_is_refused() {
    serve(async |service| {
        let mut peer = Peer::greeted(&service, 1).await;
        peer.say(&Call::Withdraw { name: name(), owner: owner(1) }).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Done)).await;
        peer.say(&acquire(1, true, TTL)).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Lost)).await;
    });
}

#[test]
fn events_are_told_to_connections_that_follow_them() {
    serve(async |service| {
        let mut peer = Peer::greeted(&service, 1).await;
        let follow = peer.say(&Call::Follow { prefix: "a" }).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Done)).await;
        let mut other = Peer::greeted(&service, 2).await;
        other.say(&acquire(1, false, TTL)).await;
        other.granted().await;
        let number = peer.hears(|reply| match reply {
            Reply::Happened(happened) => assert_eq!((happened.name, happened.what), (name(), 0)),
            other => panic!("{other:?}"),
        });
        assert_eq!(number.await, follow);
        peer.say(&Call::Unfollow { call: follow }).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Done)).await;
        other.say(&Call::Release { name: name(), owner: owner(1) }).await;
        other.hears(|reply| assert!(matches!(reply, Reply::Released { .. }))).await;
        peer.say(&Call::Ping).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Pong)).await;
    });
}

#[test]
fn what_cannot_be_read_ends_the_connection() {
    serve(async |service| {
        for wrong in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"TLG\x01\xff\xff\xff\xff", b"TLG\x01\0\0\0\x05\x03\0\0\0\x01"]
        {
            let mut peer = Peer::raw(&service);
            peer.stream.write_all(wrong).await.unwrap();
            peer.hears(|reply| assert_eq!(reply, Reply::Refused(Refusal::Malformed))).await;
            assert!(peer.ends().await);
        }
        let mut peer = Peer::raw(&service);
        peer.stream.write_all(&MAGIC).await.unwrap();
        peer.say(&Call::Hello(Hello { version: VERSION + 1, client: 1, lane: Lane::Caller })).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Refused(Refusal::Version(VERSION)))).await;
        // A number that was used before.
        let mut peer = Peer::greeted(&service, 1).await;
        peer.last = 0;
        peer.say(&Call::Ping).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Refused(Refusal::Malformed))).await;
    });
}

#[test]
fn values_outside_the_limits_are_refused_and_the_connection_goes_on() {
    serve(async |service| {
        let mut peer = Peer::greeted(&service, 1).await;
        for ttl in [Duration::from_millis(99), Duration::from_secs(301)] {
            peer.say(&acquire(1, true, ttl)).await;
            peer.hears(|reply| assert!(matches!(reply, Reply::Invalid { .. }), "{reply:?}")).await;
        }
        peer.say(&acquire(1, true, TTL)).await;
        peer.granted().await;
    });
}

#[test]
fn a_client_that_is_silent_is_dropped() {
    serve_with(true, async |service| {
        // One that never introduces itself, and one that does not answer a ping.
        assert!(Peer::raw(&service).ends().await);
        let mut peer = Peer::greeted(&service, 1).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Ping)).await;
        peer.say(&Call::Pong).await;
        peer.hears(|reply| assert_eq!(reply, Reply::Ping)).await;
        assert!(peer.ends().await);
        assert!(peer.arrived.is_empty());
    });
}

#[test]
fn a_stop_is_told_and_ends_connections() {
    serve(async |service| {
        let mut peer = Peer::greeted(&service, 1).await;
        service.stop();
        peer.hears(|reply| assert_eq!(reply, Reply::Stopping)).await;
        assert!(peer.ends().await);
    });
}
