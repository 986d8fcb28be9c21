//! The tower layer before a service of one's own.
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tokio::sync::Semaphore;
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, MemoryGate, Result, Token};
use tollgate_fence::FencingLayer;
use tower_layer::Layer;
use tower_service::Service;

type Nothing = Empty<Bytes>;

/// Writes down who came.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Vec<String>>>);

impl Service<Request<Nothing>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<std::result::Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Nothing>) -> Self::Future {
        self.0.lock().unwrap().push(request.uri().path().to_owned());
        ready(Ok(Response::new(Full::from("sold"))))
    }
}

struct Away;

impl Gate for Away {
    fn admit<'a>(&'a self, _: &'a str, _: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(ready(Err(Error::new(ErrorKind::Unavailable, "secret-host is away"))))
    }

    fn highest<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(ready(Err(Error::new(ErrorKind::Unavailable, "away"))))
    }
}

fn resource(parts: &http::request::Parts) -> Option<String> {
    let path = parts.uri.path().trim_matches('/');
    (path != "free").then(|| path.to_owned())
}

fn request(method: &str, path: &str, tokens: &[&str]) -> Request<Nothing> {
    let mut request = Request::builder().method(method).uri(path);
    for token in tokens {
        request = request.header("fencing-token", *token);
    }
    request.body(Nothing::new()).unwrap()
}

/// The status, and what the body says.
async fn asked(
    gate: Arc<dyn Gate>,
    shop: &Shop,
    request: Request<Nothing>,
) -> (StatusCode, serde_json::Value) {
    let response = FencingLayer::new(gate, resource).layer(shop.clone()).call(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(serde_json::Value::Null))
}

#[tokio::test]
async fn only_who_shows_a_token_that_is_not_stale_gets_through() {
    let (gate, shop) = (Arc::new(MemoryGate::new()), Shop::default());
    for (method, path, tokens, status) in [
        ("PUT", "/a", &["7"][..], 200),
        ("PUT", "/a", &["7"], 200),
        ("PUT", "/a", &["9"], 200),
        ("PUT", "/a", &["7"], 412),
        ("GET", "/a", &["7"], 412),
        ("GET", "/a", &[], 200),
        ("PUT", "/a", &[], 428),
        ("DELETE", "/a", &[], 428),
        ("PUT", "/a", &["9;shared"], 200),
        ("PUT", "/a", &["8;shared"], 412),
        ("PUT", "/free", &[], 200),
        ("PUT", "/b", &["x"], 400),
        ("PUT", "/b", &["-1"], 400),
        ("PUT", "/b", &[""], 400),
        ("PUT", "/b", &["9007199254740992"], 400),
        ("PUT", "/b", &["1", "2"], 400),
    ] {
        let (answered, _) = asked(gate.clone(), &shop, request(method, path, tokens)).await;
        assert_eq!(answered.as_u16(), status, "{method} {path} {tokens:?}");
    }
    assert_eq!(shop.0.lock().unwrap().len(), 6);
    assert_eq!(gate.highest("b").await.unwrap(), None, "nothing is remembered of what is no token");
}

#[tokio::test]
async fn a_refusal_says_both_numbers() {
    let (gate, shop) = (Arc::new(MemoryGate::new()), Shop::default());
    asked(gate.clone(), &shop, request("PUT", "/a", &["9"])).await;
    let (status, body) = asked(gate, &shop, request("PUT", "/a", &["7"])).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(
        (&body["token"], &body["highest"], &body["status"]),
        (&7.into(), &9.into(), &412.into()),
        "{body}"
    );
    assert!(body["detail"].as_str().unwrap().contains("stale"), "{body}");
}

#[tokio::test]
async fn nobody_gets_through_when_the_gate_cannot_be_asked() {
    let shop = Shop::default();
    let (status, body) = asked(Arc::new(Away), &shop, request("PUT", "/a", &["9"])).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!body.to_string().contains("secret-host"), "what is wrong inside is not for everybody: {body}");
    assert!(shop.0.lock().unwrap().is_empty());
}

/// A shop whose answers come in pieces, each when it is let go; without end if nobody says that it is the last.
#[derive(Clone)]
struct Slow {
    came: Arc<AtomicUsize>,
    go: Arc<Semaphore>,
    pieces: usize,
}

type Pieces = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

impl Slow {
    fn new(pieces: usize) -> Self {
        Self { came: Arc::default(), go: Arc::new(Semaphore::new(0)), pieces }
    }
}

impl Service<Request<Nothing>> for Slow {
    type Response = Response<Pieces>;
    type Error = Infallible;
    type Future = Ready<std::result::Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Nothing>) -> Self::Future {
        self.came.fetch_add(1, Ordering::SeqCst);
        let (go, pieces) = (self.go.clone(), self.pieces);
        let piece = move |number| {
            let go = go.clone();
            async move {
                go.acquire().await.unwrap().forget();
                (number < pieces).then(|| (Ok(Frame::data(Bytes::from("piece"))), number + 1))
            }
        };
        let stream = Box::pin(futures_util::stream::unfold(0, piece));
        ready(Ok(Response::new(StreamBody::new(stream).boxed_unsync())))
    }
}

async fn raised(gate: &MemoryGate, to: u64) {
    while gate.highest("a").await.unwrap() != Token::new(to).ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_larger_token_waits_until_the_service_has_answered_a_smaller_one_and_not_until_that_is_read() {
    let (gate, shop) = (Arc::new(MemoryGate::new()), Slow::new(2));
    let layer = FencingLayer::new(gate.clone(), resource);
    let old = layer.layer(shop.clone()).call(request("PUT", "/a", &["5"])).await.unwrap();
    let mut service = layer.layer(shop.clone());
    let new = tokio::spawn(async move { service.call(request("PUT", "/a", &["6"])).await.unwrap().status() });
    raised(&gate, 6).await;
    shop.go.add_permits(2);
    // Long enough for whoever does not wait.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!new.is_finished(), "the end of the answer is still to come");
    assert_eq!(shop.came.load(Ordering::SeqCst), 1);
    shop.go.add_permits(1);
    assert_eq!(new.await.unwrap(), StatusCode::OK);
    assert_eq!(
        old.into_body().collect().await.unwrap().to_bytes(),
        "piecepiece",
        "it is kept for its client"
    );
}

#[tokio::test]
async fn an_answer_that_is_dropped_is_over() {
    let (gate, shop) = (Arc::new(MemoryGate::new()), Slow::new(2));
    let layer = FencingLayer::new(gate.clone(), resource);
    for raised_before in [false, true] {
        let (old, new) = if raised_before { ("7", "8") } else { ("5", "6") };
        let first = layer.layer(shop.clone()).call(request("PUT", "/a", &[old])).await.unwrap();
        let mut service = layer.layer(shop.clone());
        let asked = request("PUT", "/a", &[new]);
        if !raised_before {
            drop(first);
            assert_eq!(service.call(asked).await.unwrap().status(), StatusCode::OK);
            continue;
        }
        let second = tokio::spawn(async move { service.call(asked).await.unwrap().status() });
        raised(&gate, 8).await;
        drop(first);
        assert_eq!(second.await.unwrap(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_cut_off() {
    let (gate, shop) = (Arc::new(MemoryGate::new()), Slow::new(usize::MAX));
    let layer = FencingLayer::new(gate.clone(), resource).drain(Duration::from_secs(4));
    let old = layer.layer(shop.clone()).call(request("PUT", "/a", &["5"])).await.unwrap();
    let new = layer.layer(shop.clone()).call(request("PUT", "/a", &["6"])).await.unwrap();
    assert_eq!(new.status(), StatusCode::OK);
    assert!(old.into_body().collect().await.is_err(), "its client hears that there was to be more");
}
