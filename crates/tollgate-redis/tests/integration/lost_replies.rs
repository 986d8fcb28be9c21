//! What becomes of locks when connections and runtimes end at the wrong moment: nobody is told something wrong, nothing
//! arrives afterwards, and no stranger suffers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{backend, claim, cli, locks, until};
use tollgate_core::{Backend, Release};
use tollgate_redis::hash_of;
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::proxy::{Close, Deed, Proxy, Resp, Which};

fn url(address: SocketAddr) -> String {
    format!("redis://{address}/")
}

/// The next request that has `word` in it.
fn with(word: &'static str) -> Which {
    Which::matching(move |frame| frame.windows(word.len()).any(|part| part == word.as_bytes()))
}

fn release() -> Which {
    with(hash_of("release").unwrap())
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_is_one_also_long_after_the_first_deadline() {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Proxy::start(engine.address(), Resp);
    let locks = locks(&url(proxy.address())).await.unwrap();
    // So that scripts are known, and what is lost is the release and not the question for it.
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let ttl = Duration::from_millis(900);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    // It lives by its renewals alone.
    tokio::time::sleep(ttl + ttl / 2).await;
    guard.ensure(ttl / 2).await.unwrap();
    let lost = proxy.on(release(), Deed::CutInsteadOfReply(Close::Abruptly));
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert!(lost.over().await, "it was executed, and its answer lost");
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:a"]), "0");
}

#[tokio::test]
async fn a_release_that_never_arrived_is_repeated() {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Proxy::start(engine.address(), Resp);
    let locks = locks(&url(proxy.address())).await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    proxy.on(release(), Deed::LoseAndCut(Close::Abruptly));
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:a"]), "0");
}

#[tokio::test]
async fn a_release_to_a_redis_that_forgot_the_lock_does_not_say_that_nobody_was_in() {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Proxy::start(engine.address(), Resp);
    let locks = locks(&url(proxy.address())).await.unwrap();
    let guard = locks.lock("a").ttl(Duration::from_secs(60)).no_renew().acquire().await.unwrap();
    let held = proxy.on(release(), Deed::Hold);
    let releasing = tokio::spawn(guard.release());
    held.caught().await;
    engine.kill();
    engine.restart(Data::Lost).unwrap();
    proxy.cut(Close::Abruptly);
    assert_eq!(releasing.await.unwrap().unwrap(), Release::AlreadyLost, "somebody may have been in since");
}

/// Somebody else's connection.
struct Stranger {
    id: u64,
    stream: BufReader<TcpStream>,
}

impl Stranger {
    fn comes(address: SocketAddr) -> Self {
        let mut stranger = Self { id: 0, stream: BufReader::new(TcpStream::connect(address).unwrap()) };
        let id = stranger.ask("CLIENT ID").unwrap();
        Self { id: id.trim_start_matches(':').parse().unwrap(), ..stranger }
    }

    fn ask(&mut self, what: &str) -> Option<String> {
        self.stream.get_mut().write_all(format!("{what}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        Some(line.trim().to_owned())
    }

    fn is_well(&mut self) -> bool {
        self.ask("PING").as_deref() == Some("+PONG")
    }
}

/// An acquire that is stuck on its way, and given up.
async fn given_up(
    backend: &impl Backend,
    proxy: &Proxy,
    claim: &tollgate_core::Claim,
) -> tollgate_testkit::proxy::Caught {
    let held = proxy.on(with("lock:a"), Deed::Hold);
    let acquire = backend.try_acquire(claim);
    tokio::select! {
        biased;
        _ = acquire => panic!("it is stuck"),
        () = held.caught() => {}
    }
    held
}

#[tokio::test]
async fn a_withdrawal_closes_its_own_connection_and_no_strangers() {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Proxy::start(engine.address(), Resp);
    let backend = backend(&url(proxy.address())).await.unwrap();
    let mut strangers: Vec<Stranger> = (0..20).map(|_| Stranger::comes(engine.address())).collect();
    let claim = claim("a");
    let held = given_up(&backend, &proxy, &claim).await;
    backend.withdraw(&claim).await.unwrap();
    held.let_go();
    assert!(!held.over().await, "it arrived after it was withdrawn");
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:a"]), "0");
    assert!(cli(engine.address(), &["INFO", "commandstats"]).contains("cmdstat_client|kill:calls=1,"));
    assert!(strangers.iter_mut().all(Stranger::is_well));
}

#[tokio::test]
async fn after_a_restart_a_connections_number_is_a_strangers_and_is_left_alone() {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Proxy::start(engine.address(), Resp);
    let backend = backend(&url(proxy.address())).await.unwrap();
    // Ours is not above the last one's.
    let last = Stranger::comes(engine.address()).id;
    let claim = claim("a");
    let _held = given_up(&backend, &proxy, &claim).await;
    engine.kill();
    engine.restart(Data::Lost).unwrap();
    let mut strangers = Vec::new();
    while strangers.last().is_none_or(|stranger: &Stranger| stranger.id <= last) {
        strangers.push(Stranger::comes(engine.address()));
    }
    let kept_their_numbers = strangers.first().is_some_and(|first| first.id < last);
    assert!(kept_their_numbers, "no stranger has a number that was ours");
    backend.withdraw(&claim).await.unwrap();
    assert!(strangers.iter_mut().all(Stranger::is_well));
    assert!(!cli(engine.address(), &["INFO", "commandstats"]).contains("client|kill"));
}

/// An acquire is stuck on its way when its runtime ends, or stands still; it is withdrawn from another.
async fn withdrawn_behind_a_runtime(ends: bool) {
    let engine = engines::private(&Config::redis()).unwrap();
    let proxy = Arc::new(Proxy::start(engine.address(), Resp));
    let backend = Arc::new(backend(&url(proxy.address())).await.unwrap());
    let claim = claim("a");
    let (theirs, wire, what) = (backend.clone(), proxy.clone(), claim.clone());
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let held = runtime.block_on(given_up(&*theirs, &wire, &what));
        if ends {
            drop(runtime);
            return (held, None);
        }
        (held, Some(runtime))
    });
    let (held, standing_still) = tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap();
    let withdrawn = tokio::time::timeout(Duration::from_secs(10), backend.withdraw(&claim)).await;
    withdrawn.expect("it does not hang").unwrap();
    held.let_go();
    if let Some(runtime) = standing_still {
        // Its end of the connection is open as long as it stands still, and the proxy waits for that.
        runtime.shutdown_background();
    }
    assert!(!held.over().await, "it arrived after it was withdrawn");
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:a", "{lock:a}:queue"]), "0");
    // And the name is free.
    let again = locks(&url(engine.address())).await.unwrap();
    until("it can be taken", async || again.lock("a").try_acquire().await.unwrap().is_some()).await;
}

#[tokio::test]
async fn a_claim_is_withdrawn_though_its_runtime_has_ended() {
    withdrawn_behind_a_runtime(true).await;
}

#[tokio::test]
async fn a_claim_is_withdrawn_though_nobody_drives_its_runtime() {
    withdrawn_behind_a_runtime(false).await;
}
