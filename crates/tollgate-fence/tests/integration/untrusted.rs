//! What neither a client nor the service can make of the proxy and the layer: another method, another path, another
//! address, an answer that seems to be the proxy's own.

use std::convert::Infallible;
use std::sync::Arc;

use crate::support::{ask, body, client, config, problem, proxy, raw, read_head, request, service};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_core::MemoryGate;
use tollgate_fence::{FencingLayer, ProxyConfig, Resources, Upstream};
use tower_layer::Layer;
use tower_service::Service;

/// Headers in which frameworks look for another method. A service that reads headers as CGI does takes `_` for `-`.
const OVERRIDES: [&str; 5] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x_http_method_override",
    "x-http_method-override",
];

fn with(
    mut request: Request<crate::support::Body>,
    name: &str,
    value: &str,
) -> Request<crate::support::Body> {
    request.headers_mut().append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    request
}

/// A service that says what it was asked.
async fn mirror() -> std::net::SocketAddr {
    service(|request| async move {
        let headers = request.headers().iter();
        let headers: Vec<_> =
            headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        Response::new(body(format!("{} {}\n{}", request.method(), request.uri(), headers.join("\n"))))
    })
    .await
}

/// A proxy before the path `/api` of a service.
async fn based(upstream: std::net::SocketAddr) -> std::net::SocketAddr {
    let upstream = Upstream::parse(&format!("http://{upstream}/api"), &Default::default()).unwrap();
    proxy(Arc::new(MemoryGate::new()), ProxyConfig::new(upstream, Resources::parse(&["shop"]).unwrap())).await
}

#[tokio::test]
async fn a_request_without_a_token_cannot_ask_for_another_method() {
    let proxy = proxy(Arc::new(MemoryGate::new()), config(mirror().await)).await;
    for name in OVERRIDES {
        let answer = ask(proxy, with(request("GET", "/r", None), name, "DELETE")).await;
        let told = (answer.status(), problem(&answer));
        assert_eq!(told, (StatusCode::PRECONDITION_REQUIRED, Some("method-override")), "{name}");
        let answer = ask(proxy, with(request("GET", "/r", Some(5)), name, "DELETE")).await;
        assert_eq!(answer.status(), StatusCode::OK, "{name}: a holder may ask for any method");
    }
    assert_eq!(ask(proxy, request("GET", "/r", None)).await.status(), StatusCode::OK);
}

/// A service in this process that answers with what the proxy alone should say, in its head and its trailers.
#[derive(Clone)]
struct Impostor;

type Pieces = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

impl Service<Request<Empty<Bytes>>> for Impostor {
    type Response = Response<Pieces>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Empty<Bytes>>) -> Self::Future {
        let mut response = Response::new(impostor_body().boxed_unsync());
        response.headers_mut().insert("fencing-problem", HeaderValue::from_static("stale"));
        std::future::ready(Ok(response))
    }
}

fn impostor_body() -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync {
    let trailers =
        ["fencing-problem", "x-sum"].map(|name| (HeaderName::from_static(name), HeaderValue::from(1)));
    let trailers = trailers.into_iter().collect();
    let frames = [Ok(Frame::data(Bytes::from("x"))), Ok(Frame::trailers(trailers))];
    StreamBody::new(futures_util::stream::iter(frames))
}

fn shop(_: &http::request::Parts) -> Option<String> {
    Some("shop".to_owned())
}

#[tokio::test]
async fn a_request_without_a_token_cannot_ask_the_layer_for_another_method() {
    let layer = FencingLayer::new(Arc::new(MemoryGate::new()), shop);
    for (name, token, status) in OVERRIDES.iter().flat_map(|name| [(name, None, 428), (name, Some("5"), 200)])
    {
        let mut asked = Request::get("/shop").header(*name, "DELETE");
        if let Some(token) = token {
            asked = asked.header("fencing-token", token);
        }
        let answer = layer.layer(Impostor).call(asked.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{name}");
    }
}

#[tokio::test]
async fn an_answer_of_the_layers_service_does_not_pass_as_the_layers_own() {
    let layer = FencingLayer::new(Arc::new(MemoryGate::new()), shop);
    let asked =
        |token: &str| Request::put("/shop").header("fencing-token", token).body(Empty::new()).unwrap();
    let answer = layer.layer(Impostor).call(asked("5")).await.unwrap();
    assert_eq!(answer.headers().get("fencing-problem"), None);
    let trailers = answer.into_body().collect().await.unwrap().trailers().cloned().unwrap();
    assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-sum"]);
    // A layer behind another one is no service.
    let inner =
        FencingLayer::new(Arc::new(MemoryGate::new()), |_: &http::request::Parts| Some("inner".to_owned()));
    let outer = FencingLayer::new(Arc::new(MemoryGate::new()), |_: &http::request::Parts| None);
    let nested = |token| outer.layer(inner.layer(Impostor)).call(asked(token));
    assert_eq!(nested("5").await.unwrap().headers().get("fencing-problem"), None);
    assert_eq!(nested("4").await.unwrap().headers()["fencing-problem"], "stale");
}

#[tokio::test]
async fn an_answer_of_the_service_does_not_pass_as_the_proxys_own() {
    let upstream = service(|_| async {
        let mut response = Response::new(impostor_body().map_err(|never| match never {}).boxed());
        response.headers_mut().insert("fencing-problem", HeaderValue::from_static("stale"));
        response.headers_mut().insert("trailer", HeaderValue::from_static("x-sum, fencing-problem"));
        response
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let asked = with(request("PUT", "/r", Some(5)), "te", "trailers");
    let answer = client(proxy).await.send_request(asked).await.unwrap();
    assert_eq!(answer.headers().get("fencing-problem"), None);
    let answer = answer.into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap().keys().collect::<Vec<_>>(), ["x-sum"]);
}

#[tokio::test]
async fn a_change_of_protocol_does_not_pass_as_the_proxys_own_answer() {
    let upstream = raw(|mut stream| async move {
        read_head(&mut stream).await;
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nfencing-problem: stale\r\n\r\n";
        stream.write_all(switch.as_bytes()).await.unwrap();
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let mut socket = TcpStream::connect(proxy).await.unwrap();
    let ask =
        "GET /r HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nfencing-token: 5\r\n\r\n";
    socket.write_all(ask.as_bytes()).await.unwrap();
    let head = read_head(&mut socket).await;
    assert!(head.starts_with("HTTP/1.1 101") && !head.contains("fencing-problem"), "{head}");
}

/// The status line of what is asked with this target, as it is written, and what is answered.
async fn target(proxy: std::net::SocketAddr, method: &str, target: &str) -> (String, String) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let asked = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.lines().next().unwrap_or_default().to_owned(), answer)
}

#[tokio::test]
async fn no_path_leads_out_of_the_part_of_the_service_that_the_proxy_stands_before() {
    let proxy = based(mirror().await).await;
    for path in [
        "/../admin",
        "/..",
        "/.",
        "/a/../../admin",
        "/%2e%2e/admin",
        "/%2E./admin",
        "/.%2e/admin",
        "/..;x/admin",
        "/..;/admin",
        "/%2e%2e;x=1/admin",
        "/..%3bx/admin",
        "/..\\admin",
        "/a\\..\\..\\admin",
        "/..%5cadmin",
        "/%5c..%5cadmin",
        "/..%2fadmin",
        "/a%2f..%2f..%2fadmin",
        "/%252e%252e/admin",
        "/%252e%252e%252fadmin",
        "/%c0%ae%c0%ae/admin",
        "/..%00/admin",
        "/..%09/admin",
        "/..%20/admin",
        "http://shop.example/../admin",
    ] {
        let (status, answer) = target(proxy, "GET", path).await;
        // What the server itself cannot read never comes here.
        assert!(status.starts_with("HTTP/1.1 400"), "{path}: {answer}");
    }
    for (path, asked) in [
        ("/", "/api/"),
        ("/a/b", "/api/a/b"),
        ("/a..b/...", "/api/a..b/..."),
        ("/.well-known/x", "/api/.well-known/x"),
        ("/a%2Fb", "/api/a%2Fb"),
        ("/a;x=../b", "/api/a;x=../b"),
        ("/a?x=/../y", "/api/a?x=/../y"),
        ("http://shop.example/a", "/api/a"),
    ] {
        let (_, answer) = target(proxy, "GET", path).await;
        assert!(answer.contains(&format!("GET {asked}\n")), "{path}: {answer}");
    }
}

#[tokio::test]
async fn the_service_as_a_whole_is_asked_only_by_a_proxy_before_all_of_it() {
    let upstream = mirror().await;
    let whole = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let part = based(upstream).await;
    let (_, answer) = target(whole, "OPTIONS", "*").await;
    assert!(answer.contains("OPTIONS *\n"), "{answer}");
    for (proxy, method) in [(part, "OPTIONS"), (whole, "GET")] {
        let (status, answer) = target(proxy, method, "*").await;
        assert!(status.starts_with("HTTP/1.1 400"), "{answer}");
    }
    // Without a base nothing is outside of it: what the service makes of dots is its own.
    let (_, answer) = target(whole, "GET", "/../admin").await;
    assert!(answer.contains("GET /../admin\n"), "{answer}");
}

#[test]
fn a_service_url_that_is_wrong_is_refused_and_not_repeated() {
    for url in [
        "http://user:secret@host/",
        "http://user:secret@host:x/",
        "http:/user:secret@host",
        "http://host/secret/../x",
        "http://host/secret/%2e%2e/x",
        "http://host/secret/.",
        "http://host/?secret",
        "ftp://secret",
        "http://host:99999/secret",
    ] {
        let error = Upstream::parse(url, &Default::default()).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("secret"), "{url}: {text}");
        assert_eq!(error.kind(), tollgate_core::ErrorKind::InvalidArgument);
    }
}

const CLAIMED: [(&str, &str); 8] = [
    ("forwarded", "for=10.0.0.1"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-forwarded-host", "evil.example"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-prefix", "/evil"),
    ("x-real-ip", "10.0.0.1"),
    ("x_forwarded_for", "10.0.0.1"),
    ("x_real-ip", "10.0.0.1"),
];

#[tokio::test]
async fn the_service_is_told_where_a_request_came_from_by_the_proxy_alone() {
    let upstream = mirror().await;
    let strict = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let mut trusting = config(upstream);
    trusting.trust_forwarded = true;
    let trusting = proxy(Arc::new(MemoryGate::new()), trusting).await;
    let asked =
        || CLAIMED.iter().fold(request("GET", "/r", None), |asked, (name, value)| with(asked, name, value));
    let told = String::from_utf8(ask(strict, asked()).await.body().to_vec()).unwrap();
    for lie in ["10.0.0.1", "evil", "https"] {
        assert!(!told.contains(lie), "{lie}: {told}");
    }
    for truth in ["x-forwarded-for: 127.0.0.1", "x-forwarded-host: shop.example", "x-forwarded-proto: http"] {
        assert!(told.lines().any(|line| line == truth), "{truth}: {told}");
    }
    let told = String::from_utf8(ask(trusting, asked()).await.body().to_vec()).unwrap();
    for passed in
        ["x-forwarded-for: 10.0.0.1, 127.0.0.1", "x-forwarded-host: evil.example", "x-real-ip: 10.0.0.1"]
    {
        assert!(told.lines().any(|line| line == passed), "{passed}: {told}");
    }
}
