//! What the suite cannot bring about from outside: requests that come late, and sessions that end.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tollgate_core::{
    Attempt, Backend, BootClock, BoxFuture, Claim, Clock, Deadline, ErrorKind, Extension, Grant, Keeper,
    LockName, LossCause, Mode, Moment, Release,
};

use super::{polling, session};
use crate::conformance;
use crate::subject::{Subject, eventually};

const TTL: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3);

fn clock() -> Arc<dyn Clock> {
    Arc::new(BootClock::new(Keeper::global().unwrap()))
}

fn session_client(address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(session::SessionBackend::new(address, clock, Keeper::global().unwrap()))
}

fn polling_client(address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(polling::PollingBackend::new(address, clock))
}

type Client = fn(&str, Arc<dyn Clock>) -> Arc<dyn Backend>;

/// Both engines, each with how to become its client.
fn both() -> [(String, Client); 2] {
    [(session::start(), session_client), (polling::start(), polling_client)]
}

fn claim(ttl: Duration) -> Claim {
    Claim::new(LockName::new("lock").unwrap(), Mode::Exclusive, ttl)
}

async fn granted(backend: &dyn Backend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Busy(contention) => panic!("a free lock was busy: {contention:?}"),
    }
}

fn end(deadline: Deadline) -> Moment {
    let Deadline::At(end) = deadline else { panic!("it has an end") };
    end
}

async fn until_idle(backend: &dyn Backend) {
    let name = LockName::new("lock").unwrap();
    eventually("nobody is there", || async { backend.inspect(&name).await.unwrap().is_none().then_some(()) })
        .await;
}

/// A clock that stands still: nothing that waits for it ever happens, so sessions are not kept alive.
#[derive(Debug)]
struct Stopped(Moment);

impl Clock for Stopped {
    fn now(&self) -> Moment {
        self.0
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Passes requests on to `engine` after `before`, and replies back after `after`, whoever still waits.
async fn slow_way(engine: String, before: Duration, after: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let engine = engine.clone();
            tokio::spawn(async move {
                let (mut client, mut line) = (BufReader::new(client), String::new());
                client.read_line(&mut line).await.unwrap();
                tokio::time::sleep(before).await;
                let mut engine = BufReader::new(TcpStream::connect(engine).await.unwrap());
                engine.write_all(line.as_bytes()).await.unwrap();
                line.clear();
                engine.read_line(&mut line).await.unwrap();
                tokio::time::sleep(after).await;
                // The client may be gone.
                let _ = client.write_all(line.as_bytes()).await;
            });
        }
    });
    address
}

/// A backend on a network whose subject knows of no proxy.
struct Unproxied;

impl Subject for Unproxied {
    fn name(&self) -> &'static str {
        "fake-polling"
    }

    fn address(&self) -> String {
        polling::start()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, tollgate_core::Result<Arc<dyn Backend>>> {
        Box::pin(async move { Ok(polling_client(address, clock)) })
    }
}

#[test]
fn a_backend_on_a_network_cannot_dodge_the_proxy() {
    let case = conformance::named("an_acquire_that_arrives_twice_is_one_grant");
    assert!((case.applies)(polling_client("127.0.0.1:1", clock()).capabilities()));
    let failed = conformance::run(case, Arc::new(Unproxied), LONG).unwrap_err();
    assert!(failed.contains("give its Subject a `through`"), "{failed}");
}

#[tokio::test]
async fn a_withdraw_that_overtakes_its_acquire_still_counts() {
    let slow = Duration::from_millis(150);
    for (engine, client) in both() {
        let backend = client(&slow_way(engine.clone(), slow, Duration::ZERO).await, clock());
        let direct = client(&engine, clock());
        // So that the session is open, where there is one.
        let first = granted(&*backend, &claim(LONG)).await;
        backend.release(&first).await.unwrap();
        let claim = claim(LONG);
        let gave_up = tokio::time::timeout(slow / 2, backend.try_acquire(&claim)).await;
        assert!(gave_up.is_err(), "the way is not slow");
        direct.withdraw(&claim).await.unwrap();
        tokio::time::sleep(slow * 2).await;
        assert_eq!(direct.inspect(&claim.name).await.unwrap(), None, "a withdrawn claim was granted");
    }
}

#[tokio::test]
async fn a_slow_reply_does_not_move_the_deadline() {
    let slow = Duration::from_millis(200);
    for (engine, client) in both() {
        let clock = clock();
        let backend = client(&slow_way(engine, Duration::ZERO, slow).await, clock.clone());
        let asked = clock.now();
        let grant = granted(&*backend, &claim(LONG)).await;
        let latest = asked + LONG - Deadline::margin(LONG) + slow / 2;
        assert!(end(grant.deadline) <= latest, "the deadline counts from the reply");
    }
}

#[tokio::test]
async fn what_was_released_is_not_granted_again() {
    for (engine, client) in both() {
        let (backend, claim) = (client(&engine, clock()), claim(TTL));
        let grant = granted(&*backend, &claim).await;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        let again = backend.try_acquire(&claim).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Lost);
        until_idle(&*backend).await;
    }
}

#[tokio::test]
async fn a_claim_asked_for_again_does_not_live_longer() {
    for (engine, client) in both() {
        let (backend, claim) = (client(&engine, clock()), Claim { standalone: true, ..claim(LONG) });
        let first = granted(&*backend, &claim).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        // The session engine refuses: the second request came in a session of its own.
        if let Ok(again) = backend.try_acquire(&claim).await {
            let Attempt::Granted(again) = again else { panic!("our own lock is busy") };
            assert_eq!((again.token, again.deadline), (first.token, first.deadline));
        }
        backend.withdraw(&claim).await.unwrap();
        until_idle(&*backend).await;
    }
}

#[tokio::test]
async fn an_engine_that_is_not_there_changes_nothing_and_one_that_hangs_up_may_have() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hangs_up = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            BufReader::new(client).read_line(&mut String::new()).await.unwrap();
        }
    });
    for client in [session_client as Client, polling_client] {
        let error = client(&address, clock()).withdraw(&claim(TTL)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
    }
    hangs_up.abort();
    assert!(hangs_up.await.unwrap_err().is_cancelled());
    for client in [session_client as Client, polling_client] {
        let error = client(&address, clock()).try_acquire(&claim(TTL)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn an_ended_session_takes_holder_and_waiter_along_and_the_next_acquire_opens_another() {
    let engine = session::start();
    let backend = session_client(&engine, Arc::new(Stopped(clock().now())));
    let grant = granted(&*backend, &claim(TTL)).await;
    let waiting = backend.acquire(&claim(TTL)).await.unwrap_err();
    assert_eq!(waiting.kind(), ErrorKind::Lost, "the lock of an ended session went to its own waiter");
    until_idle(&*backend).await;
    let lost = backend.lost(&grant).unwrap();
    let extended = backend.extend(&grant, TTL, None).await.unwrap();
    assert_eq!(extended, Extension::Lost { cause: LossCause::SessionEnded });
    assert_eq!(lost.await, LossCause::SessionEnded);
    let next = granted(&*backend, &claim(TTL)).await;
    assert!(next.token > grant.token && next.handle != grant.handle);
}

#[tokio::test]
async fn a_strangers_shared_session_cannot_be_kept_alive() {
    let engine = session::start();
    let (mine, theirs) = (session_client(&engine, clock()), session_client(&engine, clock()));
    let grant = granted(&*mine, &claim(TTL)).await;
    let error = theirs.extend(&grant, TTL, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let alone = Claim { standalone: true, name: LockName::new("alone").unwrap(), ..claim(LONG) };
    let alone = granted(&*mine, &alone).await;
    drop(mine);
    until_idle(&*theirs).await;
    assert!(matches!(theirs.extend(&alone, LONG, None).await.unwrap(), Extension::Extended { .. }));
}

#[tokio::test]
async fn a_session_is_kept_alive_until_its_client_is_closed_or_dropped() {
    let engine = session::start();
    let watcher = session_client(&engine, clock());
    for close in [true, false] {
        let backend = session_client(&engine, clock());
        let grant = granted(&*backend, &claim(TTL)).await;
        // Nobody extends the grant: the session's own renewal keeps it.
        tokio::time::sleep(TTL * 3).await;
        assert!(watcher.inspect(&grant.name).await.unwrap().is_some(), "the session was not kept alive");
        if close {
            backend.close().await;
            until_idle(&*watcher).await;
        }
        drop(backend);
        until_idle(&*watcher).await;
    }
}
