//! The proxy: who gets through, and in which order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{ask, body, client, config, problem, proxy, put, request, service, until};
use http::{Method, Response, StatusCode};
use tokio::sync::Semaphore;
use tollgate_core::{Fence, Gate, MemoryGate, Token};
use tollgate_fence::{Issued, Proxy, Resources};
use tollgate_testkit::engines::{self, Config, Data};

/// A service whose requests wait until they are let go, and what it saw: each with its token when it came and when it was done.
#[derive(Clone)]
struct Slow {
    seen: Arc<Mutex<Vec<String>>>,
    go: Arc<Semaphore>,
}

impl Slow {
    async fn start() -> (Self, std::net::SocketAddr) {
        let slow = Self { seen: Arc::default(), go: Arc::new(Semaphore::new(0)) };
        let this = slow.clone();
        let address = service(move |request| {
            let this = this.clone();
            async move {
                let token = request.headers()["fencing-token"].to_str().unwrap().to_owned();
                this.note(format!("{token} came"));
                this.go.acquire().await.unwrap().forget();
                this.note(format!("{token} done"));
                Response::new(body("done"))
            }
        })
        .await;
        (slow, address)
    }

    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(what);
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn raised(gate: &MemoryGate, resource: &str, to: u64) {
    until("the mark", async || gate.highest(resource).await.unwrap() == Token::new(to).ok()).await;
}

#[tokio::test]
async fn what_shows_no_token_or_none_that_is_one_is_refused_and_not_remembered() {
    let came = Arc::new(AtomicUsize::new(0));
    let counted = came.clone();
    let upstream = service(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Response::new(body("ok")) }
    })
    .await;
    let gate = Arc::new(MemoryGate::new());
    let proxy = proxy(gate.clone(), config(upstream)).await;
    for (method, path, tokens, status, word) in [
        ("PUT", "/a", &[][..], 428, Some("missing")),
        ("PATCH", "/a", &[], 428, Some("missing")),
        ("PUT", "/a", &["9007199254740992"], 400, Some("malformed")),
        ("PUT", "/a", &["-1"], 400, Some("malformed")),
        ("PUT", "/a", &["x"], 400, Some("malformed")),
        ("PUT", "/a", &[""], 400, Some("malformed")),
        ("PUT", "/a", &["4", "5"], 400, Some("malformed")),
        ("GET", "/a", &["x"], 400, Some("malformed")),
        ("PUT", "/", &["5"], 400, Some("no-resource")),
        ("PUT", "/a/../b", &["5"], 400, Some("malformed")),
        ("GET", "/a", &[], 200, None),
    ] {
        let mut request = request(method, path, None);
        for token in tokens {
            request.headers_mut().append("fencing-token", token.parse().unwrap());
        }
        let response = ask(proxy, request).await;
        assert_eq!(
            (response.status().as_u16(), problem(&response)),
            (status, word),
            "{method} {path} {tokens:?}"
        );
    }
    assert_eq!(came.load(Ordering::SeqCst), 1);
    assert_eq!(gate.highest("a").await.unwrap(), None);
    assert_eq!(put(proxy, "/a/x", 9).await, StatusCode::OK);
    let stale = ask(proxy, request("DELETE", "/a/y", Some(8))).await;
    assert_eq!((stale.status(), problem(&stale)), (StatusCode::PRECONDITION_FAILED, Some("stale")));
    let said: serde_json::Value = serde_json::from_slice(stale.body()).unwrap();
    assert_eq!((&said["token"], &said["highest"]), (&8.into(), &9.into()), "{said}");
    assert_eq!(ask(proxy, request("GET", "/a", Some(8))).await.status(), StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn a_larger_token_is_forwarded_only_when_every_smaller_one_was_answered() {
    let (slow, upstream) = Slow::start().await;
    let gate = Arc::new(MemoryGate::new());
    let proxy = proxy(gate.clone(), config(upstream)).await;
    let old = tokio::spawn(put(proxy, "/r", 5));
    until("the old one", async || slow.seen() == ["5 came"]).await;
    let new = tokio::spawn(put(proxy, "/r", 6));
    raised(&gate, "r", 6).await;
    assert_eq!(put(proxy, "/r", 5).await, StatusCode::PRECONDITION_FAILED, "no more of the old ones");
    let other = tokio::spawn(put(proxy, "/other", 7));
    until("another resource", async || slow.seen().contains(&"7 came".to_owned())).await;
    assert_eq!(slow.seen(), ["5 came", "7 came"], "the new one waits");
    slow.go.add_permits(3);
    for answer in [old, new, other] {
        assert_eq!(answer.await.unwrap(), StatusCode::OK);
    }
    let seen = slow.seen();
    let at = |what: &str| seen.iter().position(|seen| seen == what).unwrap();
    assert!(at("5 done") < at("6 came"), "{seen:?}");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_nothing() {
    let (slow, upstream) = Slow::start().await;
    let gate = Arc::new(MemoryGate::new());
    let proxy = proxy(gate.clone(), config(upstream)).await;
    let old = tokio::spawn(put(proxy, "/r", 5));
    until("the old one", async || slow.seen() == ["5 came"]).await;
    old.abort();
    let _ = old.await;
    let new = tokio::spawn(put(proxy, "/r", 6));
    raised(&gate, "r", 6).await;
    // Long enough for a proxy that forgets to have forwarded it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(slow.seen(), ["5 came"], "the service still works on it");
    slow.go.add_permits(2);
    assert_eq!(new.await.unwrap(), StatusCode::OK);
    assert_eq!(slow.seen(), ["5 came", "5 done", "6 came", "6 done"]);
}

#[tokio::test]
async fn who_waits_for_too_long_may_come_again() {
    let (slow, upstream) = Slow::start().await;
    let mut config = config(upstream);
    config.drain = Duration::from_millis(100);
    config.timeout = Duration::from_millis(200);
    let proxy = proxy(Arc::new(MemoryGate::new()), config).await;
    let late = ask(proxy, request("PUT", "/r", Some(5))).await;
    assert_eq!((late.status(), problem(&late)), (StatusCode::GATEWAY_TIMEOUT, Some("late")));
    // It was told of a time-out; the service knows nothing of that.
    let busy = ask(proxy, request("PUT", "/r", Some(6))).await;
    assert_eq!((busy.status(), problem(&busy)), (StatusCode::SERVICE_UNAVAILABLE, Some("busy")));
    assert_eq!(busy.headers()["retry-after"], "1");
    assert_eq!(slow.seen(), ["5 came"]);
    slow.go.add_permits(9);
    until("the next one", async || put(proxy, "/r", 6).await == StatusCode::OK).await;
}

#[tokio::test]
async fn a_hundred_at_once_get_through() {
    let came = Arc::new(AtomicUsize::new(0));
    let counted = came.clone();
    let upstream = service(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Response::new(body("ok")) }
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let all: Vec<_> = (0..100)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = client(proxy).await;
                for _ in 0..5 {
                    client.ready().await.unwrap();
                    let answer = client.send_request(request("PUT", "/r", Some(5))).await.unwrap();
                    assert_eq!(answer.status(), StatusCode::OK);
                    http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
                }
            })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    assert_eq!(came.load(Ordering::SeqCst), 500);
}

#[tokio::test]
async fn nothing_gets_through_while_the_store_is_away() {
    let upstream = service(|_| async { Response::new(body("ok")) }).await;
    let config_of = Config::redis().argument("--appendonly").argument("yes");
    let engine = engines::private(&config_of.argument("--appendfsync").argument("always")).unwrap();
    let gate = tollgate::gate(&format!("redis://{}/", engine.address())).await.unwrap();
    let proxy = proxy(gate, config(upstream)).await;
    assert_eq!(put(proxy, "/r", 5).await, StatusCode::OK);
    engine.kill();
    let away = ask(proxy, request("PUT", "/r", Some(5))).await;
    assert_eq!((away.status(), problem(&away)), (StatusCode::SERVICE_UNAVAILABLE, Some("gate")));
    engine.restart(Data::Kept).unwrap();
    until("the store", async || put(proxy, "/r", 5).await == StatusCode::OK).await;
    assert_eq!(put(proxy, "/r", 4).await, StatusCode::PRECONDITION_FAILED, "it has forgotten nothing");
}

#[tokio::test]
async fn a_token_that_was_never_given_is_refused_where_the_engine_is_asked() {
    let upstream = service(|_| async { Response::new(body("ok")) }).await;
    let folder = tempfile::tempdir().unwrap();
    let locks = tollgate::connect(&format!("file:{}", folder.path().display())).await.unwrap();
    let marks = Arc::new(MemoryGate::new());
    let gate = Issued::new(marks.clone(), locks.clone()).unwrap();
    let proxy = proxy(Arc::new(gate), config(upstream)).await;
    assert_eq!(put(proxy, "/r", Token::MAX.get()).await, StatusCode::PRECONDITION_FAILED, "nobody holds it");
    let first = locks.lock("r").acquire().await.unwrap();
    for invented in [Token::MAX.get(), first.token().get() + 1] {
        let refused = ask(proxy, request("PUT", "/r", Some(invented))).await;
        assert_eq!((refused.status(), problem(&refused)), (StatusCode::PRECONDITION_FAILED, Some("stale")));
    }
    assert_eq!(marks.highest("r").await.unwrap(), None, "nothing is remembered");
    let old = first.token().get();
    assert_eq!(put(proxy, "/r", old).await, StatusCode::OK);
    first.release().await.unwrap();
    assert_eq!(put(proxy, "/r", old).await, StatusCode::OK, "nobody was in after it");
    let second = locks.lock("r").acquire().await.unwrap();
    assert_eq!(put(proxy, "/r", second.token().get()).await, StatusCode::OK);
    assert_eq!(put(proxy, "/r", old).await, StatusCode::PRECONDITION_FAILED);
    let memory = tollgate::connect("memory:").await.unwrap();
    let Err(refused) = Issued::new(marks, memory) else { panic!("it cannot tell") };
    assert_eq!(refused.kind(), tollgate_core::ErrorKind::Unsupported);
}

#[tokio::test]
async fn methods_and_resources_are_as_configured() {
    let upstream = service(|_| async { Response::new(body("ok")) }).await;
    let gate = Arc::new(MemoryGate::new());
    let mut config = config(upstream);
    config.unguarded = vec![Method::POST];
    config.resources = Resources::by_header("fencing-resource").unwrap();
    let proxy = proxy(gate.clone(), config).await;
    assert_eq!(ask(proxy, request("GET", "/x", None)).await.status(), StatusCode::PRECONDITION_REQUIRED);
    assert_eq!(ask(proxy, request("POST", "/x", None)).await.status(), StatusCode::OK);
    let unnamed = ask(proxy, request("GET", "/x", Some(5))).await;
    assert_eq!((unnamed.status().as_u16(), problem(&unnamed)), (428, Some("no-resource")));
    let mut named = request("GET", "/x", Some(5));
    named.headers_mut().insert("fencing-resource", "orders".parse().unwrap());
    assert_eq!(ask(proxy, named).await.status(), StatusCode::OK);
    assert_eq!(gate.highest("orders").await.unwrap(), Token::new(5).ok());
}

#[tokio::test]
async fn a_proxy_that_is_stopped_finishes_what_is_under_way() {
    let (slow, upstream) = Slow::start().await;
    let gate: Arc<dyn Gate> = Arc::new(MemoryGate::new());
    gate.admit("r", Fence::shown(Token::MIN, true)).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(Proxy::new(Some(gate), config(upstream)).serve(listener, async {
        let _ = stopped.await;
    }));
    let gone = tokio::spawn(put(address, "/gone", 4));
    let stays = tokio::spawn(put(address, "/r", 5));
    until("both", async || slow.seen().len() == 2).await;
    gone.abort();
    stop.send(()).unwrap();
    until("the port", async || tokio::net::TcpStream::connect(address).await.is_err()).await;
    assert!(!serving.is_finished());
    slow.go.add_permits(2);
    assert_eq!(stays.await.unwrap(), StatusCode::OK);
    serving.await.unwrap();
    assert_eq!(slow.seen().len(), 4, "also what nobody waits for any more");
}
