//! One foreign client and ours, step by step: what each of them may do while the other is in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{
    Backend, Claim, Extension, Grant, Guard, LockName, LockRequest, Locks, LossCause, Release, Revocation,
    RevokeMode,
};
use tollgate_redis::RedisBackend;
use tollgate_testkit::engines::{self, Config};

use crate::support::{backend, cli, until};
use crate::worker::{Kind, Worker};

/// Long enough that it never ends within a test.
pub(crate) const LONG: &str = "60000";
/// What is left to run out.
pub(crate) const SHORT: Duration = Duration::from_millis(700);
/// Redis counts in whole milliseconds, by a clock that it reads once for several commands.
pub(crate) const ROUNDING: Duration = Duration::from_millis(20);

/// A lock that nobody else uses, seen by a foreign client and by ours.
pub(crate) struct Street {
    kind: Kind,
    server: SocketAddr,
    name: String,
    backend: Arc<RedisBackend>,
    locks: Locks,
    folder: tempfile::TempDir,
}

impl Street {
    pub(crate) async fn new(kind: Kind, case: &str) -> Self {
        let server = engines::shared(&Config::redis()).address();
        let backend = Arc::new(backend(&format!("redis://{server}")).await.unwrap());
        let locks = Locks::new(backend.clone()).unwrap();
        let name = format!("{case}/{}", kind.name());
        Self { kind, server, name, backend, locks, folder: tempfile::tempdir().unwrap() }
    }

    fn foreigner(&self) -> Worker {
        Worker::start(self.kind, &[self.server], &format!("lock:{}", self.name), self.folder.path())
    }

    fn ours(&self) -> LockRequest {
        self.locks.lock(&self.name)
    }

    async fn is_busy(&self) -> bool {
        self.ours().try_acquire().await.unwrap().is_none()
    }

    /// Waits until so many of ours wait.
    async fn until_waiting(&self, waiters: usize) {
        until(&format!("{waiters} wait"), async || {
            let state = self.locks.inspect(&self.name).await.unwrap();
            state.map_or(0, |state| state.waiters.len()) == waiters
        })
        .await;
    }

    /// The records of ours that wait: each says when it was last written, and for how long it is good.
    fn waiters(&self) -> String {
        cli(self.server, &["HVALS", &format!("{{lock:{}}}:waiters", self.name)])
    }

    /// Waits until the only one of ours that waits has asked so many times again.
    async fn until_it_has_asked(&self, times: usize) {
        for _ in 0..times {
            let before = self.waiters();
            until("it asks again", async || self.waiters() != before).await;
        }
    }

    /// Until when the only one of ours that waits counts as alive, in milliseconds of the server's clock.
    fn waiter_ends(&self) -> u64 {
        self.waiters().split(' ').nth(4).and_then(|ends| ends.parse().ok()).expect("one waits")
    }
}

/// What a client says when it gives back what it has.
pub(crate) fn released(kind: Kind) -> &'static str {
    if kind == Kind::Rslock { "tried" } else { "released" }
}

/// What a client says when it extends, and gives back, what is another's.
pub(crate) fn refusals(kind: Kind) -> [&'static str; 2] {
    match kind {
        Kind::RedisPy => ["refused LockNotOwnedError"; 2],
        Kind::NodeRedlock => ["refused LockError"; 2],
        Kind::Rslock => ["refused Unavailable", "tried"],
        Kind::Tollgate => unreachable!("ours is no foreigner"),
    }
}

pub(crate) async fn ours_is_busy_while_it_holds_and_waits_for_its_release(street: Street) {
    let mut foreigner = street.foreigner();
    assert_eq!(foreigner.ask(&format!("try {LONG}")), "granted");
    assert!(street.is_busy().await);
    assert!(street.ours().shared().try_acquire().await.unwrap().is_none(), "readers, too");
    let seen = street.locks.inspect(&street.name).await.unwrap().unwrap();
    assert_eq!((seen.holders.len(), seen.holders[0].token), (1, None), "it is seen, and has no token");

    let waiting = tokio::spawn(street.ours().acquire());
    street.until_waiting(1).await;
    street.until_it_has_asked(3).await;
    assert!(!waiting.is_finished(), "ours came in beside it");
    assert_eq!(foreigner.ask(&format!("extend {LONG}")), "extended", "a waiter changes nothing for it");
    assert_eq!(foreigner.ask("release"), released(street.kind));
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(foreigner.ask(&format!("try {LONG}")), "busy");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// redis-py's locks have no ttl unless they are given one.
pub(crate) async fn ours_waits_for_a_lock_that_never_runs_out(street: Street) {
    let mut foreigner = street.foreigner();
    assert_eq!(foreigner.ask("try none"), "granted");
    assert!(street.is_busy().await);
    let seen = street.locks.inspect(&street.name).await.unwrap().unwrap();
    assert_eq!(seen.holders[0].expires_in, None, "nothing says when it ends");
    let ttl = Duration::from_millis(600);
    let waiting = tokio::spawn(street.ours().ttl(ttl).acquire());
    street.until_waiting(1).await;
    // For longer than a waiter's ttl it shows that it is alive.
    let first = Duration::from_millis(street.waiter_ends());
    until("it outlives its ttl", async || Duration::from_millis(street.waiter_ends()) > first + ttl).await;
    assert!(!waiting.is_finished(), "ours came in beside it");
    assert_eq!(foreigner.ask("release"), "released", "a waiter changes nothing for it");
    assert_eq!(waiting.await.unwrap().unwrap().release().await.unwrap(), Release::Released);
}

pub(crate) async fn what_it_let_run_out_is_ours_and_it_cannot_touch_that(street: Street) {
    let mut foreigner = street.foreigner();
    let since = Instant::now();
    assert_eq!(foreigner.ask(&format!("try {}", SHORT.as_millis())), "granted");
    let guard = street.ours().acquire().await.unwrap();
    assert!(since.elapsed() + ROUNDING >= SHORT, "ours was in after {:?}", since.elapsed());

    // In this order: after a release they do not ask the server again.
    let [extend, release] = refusals(street.kind);
    assert_eq!(foreigner.ask(&format!("extend {LONG}")), extend);
    assert_eq!(foreigner.ask("release"), release);
    assert!(street.is_busy().await, "it is still ours");
    let all = guard.remaining().unwrap() + Duration::from_secs(10);
    guard.ensure(all.min(Duration::from_secs(29))).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

pub(crate) async fn it_is_refused_while_ours_holds_and_gets_it_after_the_release(street: Street) {
    let mut foreigner = street.foreigner();
    let guard = street.ours().ttl(Duration::from_millis(600)).acquire().await.unwrap();
    // For longer than a ttl: renewals keep it out.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        assert_eq!(foreigner.ask(&format!("try {LONG}")), "busy");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    guard.check().unwrap();
    foreigner.order(&format!("acquire {LONG}"));
    assert_eq!(foreigner.reply_within(Duration::from_millis(300)), None, "it came in beside ours");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    foreigner.must_say("granted");
    assert!(street.is_busy().await);
}

pub(crate) async fn what_ours_let_run_out_is_its_and_ours_cannot_touch_that(street: Street) {
    let mut foreigner = street.foreigner();
    let since = Instant::now();
    let guard = street.ours().ttl(SHORT).no_renew().acquire().await.unwrap();
    assert_eq!(foreigner.ask(&format!("acquire {LONG}")), "granted");
    assert!(since.elapsed() + ROUNDING >= SHORT, "it was in after {:?}", since.elapsed());
    assert!(guard.check().is_err(), "ours thinks that it is in beside it");

    // The server has to refuse, whatever the guard knows.
    let (backend, grant) = (&street.backend, guard.grant().clone());
    assert_eq!(backend.release(&grant).await.unwrap(), Release::AlreadyLost);
    let extended = backend.extend(&grant, Duration::from_secs(60), None).await.unwrap();
    assert_eq!(extended, Extension::Lost { cause: LossCause::Gone });
    backend.withdraw(&claim_of(&grant)).await.unwrap();
    for mode in [RevokeMode::Ask, RevokeMode::Force] {
        assert_eq!(backend.revoke(&grant.name, grant.token, mode).await.unwrap(), Revocation::NotHeld);
    }
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert!(street.is_busy().await, "it is still its");
    assert_eq!(foreigner.ask(&format!("extend {LONG}")), "extended");
    assert_eq!(foreigner.ask("release"), released(street.kind));
    assert!(!street.is_busy().await);
}

/// The claim that led to a grant.
fn claim_of(grant: &Grant) -> Claim {
    let claim = Claim::new(LockName::new(grant.name.as_str()).unwrap(), grant.mode, SHORT);
    Claim { owner: grant.owner, ..claim }
}

pub(crate) async fn neither_a_line_of_ours_nor_it_is_left_out(street: Street) {
    let (mut first, mut other) = (street.foreigner(), street.foreigner());
    assert_eq!(first.ask(&format!("try {LONG}")), "granted");
    let mut line = Vec::new();
    for place in 1..=3 {
        let request = street.ours();
        line.push(tokio::spawn(async move { pass(request.acquire().await.unwrap()).await }));
        street.until_waiting(place).await;
    }
    other.order(&format!("acquire {LONG}"));
    assert_eq!(other.reply_within(Duration::from_millis(100)), None);
    assert_eq!(first.ask("release"), released(street.kind));
    // Whoever of them is first, it must let the others in.
    other.must_say("granted");
    assert_eq!(other.ask("release"), released(street.kind));
    let mut tokens = Vec::new();
    for waiter in line {
        tokens.push(waiter.await.unwrap());
    }
    assert!(tokens.is_sorted_by(|before, after| before < after), "ours went out of turn: {tokens:?}");
}

async fn pass(guard: Guard) -> u64 {
    tokio::time::sleep(Duration::from_millis(20)).await;
    let token = guard.token().get();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    token
}

pub(crate) async fn holders_that_share_keep_it_out_until_the_last_has_left(street: Street) {
    let mut foreigner = street.foreigner();
    for shares in [LockRequest::shared, |request: LockRequest| request.permit(3)] {
        let one = shares(street.ours()).acquire().await.unwrap();
        let two = shares(street.ours()).acquire().await.unwrap();
        assert_eq!(foreigner.ask(&format!("try {LONG}")), "busy");
        one.release().await.unwrap();
        assert_eq!(foreigner.ask(&format!("try {LONG}")), "busy", "one is still in");
        two.release().await.unwrap();
        assert_eq!(foreigner.ask(&format!("try {LONG}")), "granted");
        assert!(shares(street.ours()).try_acquire().await.unwrap().is_none());
        assert_eq!(foreigner.ask("release"), released(street.kind));
    }
}
