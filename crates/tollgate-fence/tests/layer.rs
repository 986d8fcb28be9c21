//! The tower layer before a service of one's own.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, MemoryGate, Result, Token};
use tollgate_fence::FencingLayer;
use tower_layer::Layer;
use tower_service::Service;

/// Writes down who came.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Vec<String>>>);

impl Service<Request<()>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<std::result::Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
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

fn request(method: &str, path: &str, tokens: &[&str]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(path);
    for token in tokens {
        request = request.header("fencing-token", *token);
    }
    request.body(()).unwrap()
}

/// The status, and what the body says.
async fn asked(gate: Arc<dyn Gate>, shop: &Shop, request: Request<()>) -> (StatusCode, serde_json::Value) {
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

#[tokio::test]
async fn a_larger_token_waits_until_the_answer_to_a_smaller_one_is_read() {
    let (gate, shop) = (Arc::new(MemoryGate::new()), Shop::default());
    let layer = FencingLayer::new(gate, resource);
    let old = layer.layer(shop.clone()).call(request("PUT", "/a", &["5"])).await.unwrap();
    let mut service = layer.layer(shop.clone());
    let new = tokio::spawn(async move { service.call(request("PUT", "/a", &["6"])).await.unwrap().status() });
    // The mark is raised when the new one waits.
    loop {
        let mut service = layer.layer(shop.clone());
        let stale = service.call(request("PUT", "/a", &["4"])).await.unwrap().into_body();
        let text = stale.collect().await.unwrap().to_bytes();
        if serde_json::from_slice::<serde_json::Value>(&text).unwrap()["highest"] == 6 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(!new.is_finished());
    assert_eq!(shop.0.lock().unwrap().len(), 1);
    drop(old);
    assert_eq!(new.await.unwrap(), StatusCode::OK);
}
