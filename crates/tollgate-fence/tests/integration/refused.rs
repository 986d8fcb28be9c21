//! What whoever is refused hears, also when it sends a long body and reads nothing until all of it is sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{body, config, proxy, put, raw, read_head, read_json, service, until};
use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_core::{BoxFuture, Error, ErrorKind, Fence, Gate, MemoryGate, Result, Token};
use tollgate_fence::FencingLayer;
use tower_layer::Layer;
use tower_service::Service;

/// More than the network keeps for somebody who does not read.
const LONG: usize = 8 * 1024 * 1024;

/// A PUT of which everything is sent before anything is read; the status line, and what the answer says.
async fn put_long(address: SocketAddr, headers: &str) -> (String, serde_json::Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("PUT /r HTTP/1.1\r\nhost: x\r\n{headers}content-length: {LONG}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; LONG]).await.unwrap();
    let head = read_head(&mut stream).await;
    let said = read_json(&mut stream, &head).await;
    (head.lines().next().unwrap().to_owned(), said)
}

async fn hears_both_numbers(address: SocketAddr) {
    let (status, said) = put_long(address, "fencing-token: 5\r\n").await;
    assert!(status.starts_with("HTTP/1.1 412"), "{status}");
    assert_eq!((&said["token"], &said["highest"]), (&5.into(), &6.into()), "{said}");
    for (headers, expected) in [("", "428"), ("fencing-token: x\r\n", "400")] {
        let (status, said) = put_long(address, headers).await;
        assert!(status.starts_with(&format!("HTTP/1.1 {expected}")), "{status}: {said}");
    }
}

async fn marked() -> Arc<MemoryGate> {
    let gate = Arc::new(MemoryGate::new());
    gate.admit("r", Fence::shown(Token::new(6).unwrap(), true)).await.unwrap();
    gate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_a_long_body_hears_why_the_proxy_refuses_it() {
    let upstream = service(|_| async { Response::new(body("ok")) }).await;
    hears_both_numbers(proxy(marked().await, config(upstream)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_a_long_body_hears_why_the_layer_refuses_it() {
    let layer = FencingLayer::new(marked().await, |parts: &http::request::Parts| {
        Some(parts.uri.path().trim_matches('/').to_owned())
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let fenced = layer.layer(Shop);
            let serve = hyper::service::service_fn(move |request| fenced.clone().call(request));
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), serve));
        }
    });
    hears_both_numbers(address).await;
}

/// Sells whatever is asked for.
#[derive(Clone)]
struct Shop;

impl<B> Service<http::Request<B>> for Shop {
    type Response = Response<http_body_util::Full<bytes::Bytes>>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<std::result::Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::result::Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<B>) -> Self::Future {
        std::future::ready(Ok(Response::new("sold".into())))
    }
}

struct Away;

impl Gate for Away {
    fn admit<'a>(&'a self, _: &'a str, _: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "away")) })
    }

    fn highest<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "away")) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_a_long_body_hears_that_it_may_come_again() {
    let arrived = Arc::new(AtomicBool::new(false));
    let upstream = raw({
        let arrived = arrived.clone();
        move |mut stream| {
            let arrived = arrived.clone();
            async move {
                read_head(&mut stream).await;
                arrived.store(true, Ordering::Relaxed);
                std::future::pending().await
            }
        }
    })
    .await;
    let away = proxy(Arc::new(Away), config(upstream)).await;
    let (status, said) = put_long(away, "fencing-token: 5\r\n").await;
    assert!(status.starts_with("HTTP/1.1 503") && said["title"] == "gate", "{status} {said}");

    let mut config = config(upstream);
    config.drain = Duration::from_millis(100);
    let busy = proxy(Arc::new(MemoryGate::new()), config).await;
    let _old = tokio::spawn(put(busy, "/r", 5));
    until("the old one is at the service", async || arrived.load(Ordering::Relaxed)).await;
    let (status, said) = put_long(busy, "fencing-token: 6\r\n").await;
    assert!(status.starts_with("HTTP/1.1 503") && said["title"] == "busy", "{status} {said}");
}

#[tokio::test]
async fn who_asks_before_it_sends_a_body_is_refused_at_once() {
    let upstream = service(|_| async { Response::new(body("ok")) }).await;
    let proxy = proxy(marked().await, config(upstream)).await;
    let (mut stream, began) = (TcpStream::connect(proxy).await.unwrap(), Instant::now());
    let head =
        "PUT /r HTTP/1.1\r\nhost: x\r\nfencing-token: 5\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 412"), "nobody wants its body: {said}");
    assert!(began.elapsed() < Duration::from_secs(4), "nobody waits for its body");
    assert_eq!(put(proxy, "/r", 6).await, StatusCode::OK);
}
