//! Users whose tokens end while they wait and hold: etcd forgets who we are every few seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{ctl, locks, secs, soon, until};
use tollgate_core::{GuardState, Release};
use tollgate_testkit::engines::{self, Config, Engine};
use tollgate_testkit::proxy::Proxy;

/// How long a token lives.
const TOKEN: u64 = 3;

/// An etcd whose tokens end soon, and the folder with its keys.
fn forgetful() -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let (private, public) = (folder.path().join("private"), folder.path().join("public"));
    std::fs::write(&private, key.serialize_pem()).unwrap();
    std::fs::write(&public, key.public_key_pem()).unwrap();
    let token = format!(
        "--auth-token=jwt,pub-key={},priv-key={},sign-method=RS256,ttl={TOKEN}s",
        public.display(),
        private.display()
    );
    let engine = engines::private(&Config::etcd().argument(token)).unwrap();
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "ann:hush"],
        &["role", "add", "locker"],
        &["role", "grant-permission", "locker", "readwrite", "--prefix=true", "/locks/"],
        &["user", "grant-role", "ann", "locker"],
        &["auth", "enable"],
    ] {
        ctl(engine.address(), words);
    }
    (engine, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_and_who_waits_outlives_the_end_of_tokens() {
    let (engine, _keys) = forgetful();
    let url = format!("etcd://ann:hush@{}/", engine.address());
    let clients = [locks(&url).await.unwrap(), locks(&url).await.unwrap()];
    let held = clients[0].lock("held").ttl(secs(4)).acquire().await.unwrap();
    let waiting = tokio::spawn(clients[1].lock("held").ttl(secs(4)).acquire());
    let (end, inside) = (Instant::now() + secs(3 * TOKEN + 2), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let (locks, inside) = (clients[task % 2].clone(), inside.clone());
            tokio::spawn(async move {
                let (mut tokens, mut longest) = (Vec::new(), Duration::ZERO);
                while Instant::now() < end {
                    let asked = Instant::now();
                    let guard = locks.lock("turns").ttl(secs(4)).acquire().await.expect("it is in turn");
                    longest = longest.max(asked.elapsed());
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two were in at once");
                    // So that tokens end while others wait.
                    tokio::time::sleep(Duration::from_millis(150)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    tokens.push(guard.token().get());
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                }
                (tokens, longest)
            })
        })
        .collect();
    let (mut most, mut fewest, mut longest) = (0, usize::MAX, Duration::ZERO);
    for task in tasks {
        let (tokens, waited) = soon("all are done", task).await.unwrap();
        assert!(tokens.is_sorted());
        (most, fewest, longest) = (most.max(tokens.len()), fewest.min(tokens.len()), longest.max(waited));
    }
    println!("each was in {fewest} to {most} times, and waited for {longest:?} at most");
    // Who is not known when it comes has to log in before it is in the queue, and others may pass it then, once for each token.
    assert!(most - fewest <= 1 + 3, "somebody missed a turn: {fewest} to {most}");
    // Who is told of nothing looks after 15 s.
    assert!(longest < secs(10), "somebody was not told of its turn for {longest:?}");
    assert_eq!(held.state(), GuardState::Held);
    assert!(!waiting.is_finished());
    assert_eq!(held.release().await.unwrap(), Release::Released);
    drop(soon("who waited all the time is in", waiting).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_begins_after_a_token_ended_is_as_quiet_as_any() {
    let (engine, _keys) = forgetful();
    let proxy = Proxy::start(engine.address(), crate::support::wire::http2());
    let direct = locks(&format!("etcd://ann:hush@{}/", engine.address())).await.unwrap();
    let mine = locks(&format!("etcd://ann:hush@{}/", proxy.address())).await.unwrap();
    let waiters =
        async |name: &str| direct.inspect(name).await.unwrap().map_or(0, |state| state.waiters.len());
    // It has a stream of watches now, which began with a token that ends.
    let first = direct.lock("first").ttl(secs(30)).acquire().await.unwrap();
    let waiting = tokio::spawn(mine.lock("first").ttl(secs(30)).acquire());
    until("it waits", async || waiters("first").await == 1).await;
    tokio::time::sleep(secs(TOKEN + 1)).await;

    let second = direct.lock("second").ttl(secs(30)).acquire().await.unwrap();
    let later = tokio::spawn(mine.lock("second").ttl(secs(30)).acquire());
    until("it waits again", async || waiters("second").await == 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.take_counts();
    tokio::time::sleep(secs(2)).await;
    let frames = proxy.take_counts().requests;
    assert!(frames < 20, "{frames} frames were sent in two seconds of waiting");
    for (guard, waiting) in [(second, later), (first, waiting)] {
        let released = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let next = soon("it is in", waiting).await.unwrap().unwrap();
        assert!(released.elapsed() < secs(2), "it heard of it only after {:?}", released.elapsed());
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }
}
