//! A service, a proxy before it, and clients.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "every test program uses a part of it")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tollgate_core::Gate;
use tollgate_fence::{Proxy, ProxyConfig, Resources, Upstream};

pub type Body = BoxBody<Bytes, hyper::Error>;

pub fn body(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

/// Waits for a condition that comes soon.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come");
}

/// A service that answers with what `handler` makes of requests.
pub async fn service<F>(
    handler: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = Response<Body>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let handler = handler.clone();
            tokio::spawn(async move {
                let serve = service_fn(move |request| {
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let mut server = hyper::server::conn::http1::Builder::new();
                // As most services: a client that closes its side is answered all the same.
                server.half_close(true);
                let _ = server.serve_connection(TokioIo::new(stream), serve).await;
            });
        }
    });
    address
}

pub fn config(upstream: SocketAddr) -> ProxyConfig {
    let upstream = Upstream::parse(&format!("http://{upstream}"), &Default::default()).unwrap();
    ProxyConfig::new(upstream, Resources::parse(&["/{name}/*={name}"]).unwrap())
}

/// A proxy as it is configured.
pub async fn proxy(gate: Arc<dyn Gate>, config: ProxyConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Proxy::new(Some(gate), config).serve(listener, std::future::pending()));
    address
}

pub fn request(method: &str, path: &str, token: Option<u64>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "shop.example");
    if let Some(token) = token {
        request = request.header("fencing-token", token);
    }
    request.body(body("")).unwrap()
}

/// A connection of a client.
pub async fn client(address: SocketAddr) -> hyper::client::conn::http1::SendRequest<Body> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

/// Asks over a connection of its own; what is answered, read to the end.
pub async fn ask(address: SocketAddr, request: Request<Body>) -> Response<Bytes> {
    let response = client(address).await.send_request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, body)
}

/// A PUT with a token; its status.
pub async fn put(address: SocketAddr, path: &str, token: u64) -> StatusCode {
    ask(address, request("PUT", path, Some(token))).await.status()
}

/// What a problem is called, if it is the proxy's own.
pub fn problem(response: &Response<Bytes>) -> Option<&str> {
    response.headers().get("fencing-problem").map(|word| word.to_str().unwrap())
}

/// A service that speaks as `talk` does, to every connection.
pub async fn raw<F: Future<Output = ()> + Send>(
    talk: impl Fn(TcpStream) -> F + Clone + Send + 'static,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let talk = talk.clone();
            tokio::spawn(async move { talk(stream).await });
        }
    });
    address
}

pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// What a problem says, of which the head was read.
pub async fn read_json(stream: &mut TcpStream, head: &str) -> serde_json::Value {
    let length =
        head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

pub const PIECE: usize = 64 * 1024;
pub const PIECES: usize = 1600;

/// A body of 100 MB, whose pieces are counted as they are asked for.
pub fn large(made: Arc<AtomicUsize>) -> Body {
    let pieces = std::iter::from_fn(move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        (number < PIECES).then(|| Ok(Frame::data(Bytes::from(vec![number as u8; PIECE]))))
    });
    StreamBody::new(futures_util::stream::iter(pieces)).boxed()
}

/// Waits until nobody makes pieces any more.
pub async fn stalled(made: &AtomicUsize) -> usize {
    loop {
        let before = made.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(300)).await;
        if before > 0 && made.load(Ordering::SeqCst) == before {
            return before;
        }
    }
}
