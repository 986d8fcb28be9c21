//! A user's transaction that sits on what the database keeps of a lock, and people who do not want to wait for that.

use std::time::{Duration, Instant};

use tollgate_core::{Error, ErrorKind, LockRequest, Locks};

use crate::subject::eventually;

/// Sits on the row of a lock until it is told to rise.
pub trait Sitter {
    /// From now on nobody else can have that row.
    fn sit(&mut self, name: &str) -> impl Future<Output = ()>;
    /// Ends the transaction.
    fn rise(&mut self) -> impl Future<Output = ()>;
}

/// How long they wait for the lock.
const WAIT: Duration = Duration::from_secs(1);
/// How much later they are told at most, and everything is in order: twice what is usual.
const LATER: Duration = Duration::from_secs(3);
/// Longer than any of this takes: what is left behind stays to be seen.
const TTL: Duration = Duration::from_secs(120);

/// Whoever gives up is told in time, though the row cannot be had, and nothing of it is left. Each of `clients` is used once.
pub async fn who_gives_up_is_told_in_time_and_leaves_nothing(
    clients: [Locks; 4],
    other: &Locks,
    sitter: &mut impl Sitter,
) {
    let name = "sat/on";
    let modes: [fn(LockRequest) -> LockRequest; 2] = [|request| request, LockRequest::shared];
    for (at, client) in clients.into_iter().enumerate() {
        let mode = modes[at % 2];
        // Some stand in the queue by then, and the others never get there.
        let queues = at < 2;
        let holder = other.lock(name).ttl(TTL).acquire().await.unwrap();
        if !queues {
            sitter.sit(name).await;
        }
        let began = Instant::now();
        let waits = tokio::spawn(mode(client.lock(name)).ttl(TTL).wait(WAIT).acquire());
        if queues {
            until_waiting(other, name, 1).await;
            sitter.sit(name).await;
        }
        let error = waits.await.unwrap().unwrap_err();
        gave_up(&error);
        client.close().await;
        let took = began.elapsed();
        println!("client {at}: its requests ended {took:?} after it started, and it waited for {WAIT:?}");
        assert!(took < WAIT + LATER, "{took:?}");
        until_waiting(other, name, 0).await;
        sitter.rise().await;
        holder.release().await.unwrap();
        let next = other.lock(name).ttl(TTL).try_acquire().await.unwrap();
        next.expect("the lock has no holder and no waiter").release().await.unwrap();
    }
}

/// Those who wait before such a row and give up keep connections busy while they leave, and no renewal stands behind them.
pub async fn a_crowd_that_gives_up_costs_nobody_a_lock(client: &Locks, sitter: &mut impl Sitter) {
    // As many leave as would keep a renewal waiting for longer than this.
    let (short, crowd) = (Duration::from_secs(3), 450);
    let mut guards = Vec::new();
    for number in 0..10 {
        guards.push(client.lock(format!("kept/{number}")).ttl(short).acquire().await.unwrap());
    }
    client.lock("sat/on").acquire().await.unwrap().release().await.unwrap();
    sitter.sit("sat/on").await;
    let crowd: Vec<_> =
        (0..crowd).map(|_| tokio::spawn(client.lock("sat/on").ttl(TTL).wait(WAIT).acquire())).collect();
    for waits in crowd {
        let error = waits.await.unwrap().unwrap_err();
        gave_up(&error);
    }
    // All of them leave now, through the connections that renewals use.
    tokio::time::sleep(short * 2).await;
    for guard in guards {
        guard.check().expect("it was renewed");
        guard.release().await.unwrap();
    }
    sitter.rise().await;
}

/// Whoever does not wait at all is told so.
pub async fn who_does_not_wait_is_told_at_once(client: &Locks, sitter: &mut impl Sitter) {
    let name = "sat/at/once";
    client.lock(name).acquire().await.unwrap().release().await.unwrap();
    sitter.sit(name).await;
    let began = Instant::now();
    assert!(client.lock(name).try_acquire().await.unwrap().is_none());
    assert!(began.elapsed() < LATER, "{:?}", began.elapsed());
    sitter.rise().await;
    let next = client.lock(name).try_acquire().await.unwrap();
    next.expect("the lock has no holder").release().await.unwrap();
}

/// The row comes free in the very moment in which somebody gives up: the request may still be granted, and is not left.
pub async fn what_is_granted_late_is_given_back(
    client: &Locks,
    other: &Locks,
    rounds: u32,
    sitter: &mut impl Sitter,
) {
    let name = "sat/late";
    other.lock(name).acquire().await.unwrap().release().await.unwrap();
    let wait = Duration::from_millis(30);
    for round in 0..rounds {
        sitter.sit(name).await;
        let request = client.lock(name).ttl(TTL);
        let request = if round % 2 == 0 { request } else { request.shared() };
        let waits = tokio::spawn(tokio::time::timeout(wait, request.acquire()));
        tokio::time::sleep(wait * 2 / 3 + wait * (round % 16) / 16).await;
        sitter.rise().await;
        if let Ok(granted) = waits.await.unwrap() {
            granted.unwrap().release().await.unwrap();
        }
        let took = async || other.lock(name).ttl(TTL).try_acquire().await.unwrap();
        let next = eventually(&format!("it is free in round {round}"), took).await;
        next.release().await.unwrap();
    }
}

/// The way to the server is so slow that the answer comes after somebody has given up, though nobody sits on anything: what was
/// granted is given back long before its ttl is over.
pub async fn what_a_slow_way_was_granted_is_given_back(slow: &Locks, other: &Locks) {
    let name = "slow/way";
    let dropped = tokio::time::timeout(Duration::from_millis(100), slow.lock(name).ttl(TTL).acquire()).await;
    dropped.expect_err("nothing was answered yet");
    let took = async || other.lock(name).ttl(TTL).try_acquire().await.unwrap();
    eventually("it is free", took).await.release().await.unwrap();
}

/// A wait ended without the lock. Whether it was busy is known only if the database answered before the row was sat on.
fn gave_up(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::Indeterminate), "{error}");
}

async fn until_waiting(locks: &Locks, name: &str, many: usize) {
    let waiters = || async {
        let state = locks.inspect(name).await.unwrap();
        (state.map_or(0, |state| state.waiters.len()) == many).then_some(())
    };
    eventually(&format!("{many} wait for {name}"), waiters).await;
}
