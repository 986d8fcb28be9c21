//! What passes the proxy: bodies, headers, upgrades, and the service's troubles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    PIECE, PIECES, ask, body, client, config, large, problem, proxy, put, raw, read_head, request, service,
    stalled, until,
};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tollgate_core::MemoryGate;
use tollgate_core::tls::TlsFiles;
use tollgate_fence::{ProxyConfig, Resources, Upstream};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_request_streams_and_is_not_kept_in_memory() {
    let go = Arc::new(Semaphore::new(0));
    let gate = go.clone();
    let upstream = service(move |request| {
        let go = gate.clone();
        async move {
            go.acquire().await.unwrap().forget();
            let mut length = 0;
            let mut incoming = request.into_body();
            while let Some(frame) = incoming.frame().await {
                length += frame.unwrap().into_data().unwrap().len();
            }
            Response::new(body(length.to_string()))
        }
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let made = Arc::new(AtomicUsize::new(0));
    let (parts, _) = request("PUT", "/r", Some(5)).into_parts();
    let sent = tokio::spawn(ask(proxy, Request::from_parts(parts, large(made.clone()))));
    let ahead = stalled(&made).await;
    assert!(ahead < PIECES / 2, "{ahead} pieces were taken though nobody reads them");
    go.add_permits(1);
    assert_eq!(sent.await.unwrap().body(), &(PIECE * PIECES).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_answer_streams_and_is_not_kept_in_memory() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let upstream = service(move |_| {
        let counted = counted.clone();
        async move { Response::new(large(counted)) }
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let answer = client(proxy).await.send_request(request("PUT", "/r", Some(5))).await.unwrap();
    let ahead = stalled(&made).await;
    assert!(ahead < PIECES / 2, "{ahead} pieces were taken though nobody reads them");
    let (mut incoming, mut length) = (answer.into_body(), 0);
    while let Some(frame) = incoming.frame().await {
        length += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(length, PIECE * PIECES);
}

#[tokio::test]
async fn the_service_hears_who_asked_and_not_what_is_between_neighbours() {
    let upstream = service(|request| async move {
        let told =
            |name: &str| request.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
        let names = [
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "fencing-token",
            "x-hop",
            "x-own",
            "keep-alive",
        ];
        let mut text = names.map(told).join("|");
        text.push_str(&format!("|{}", request.uri()));
        let mut response = Response::new(body(text));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response.headers_mut().insert("connection", "x-private".parse().unwrap());
        response.headers_mut().insert("x-private", "1".parse().unwrap());
        response.headers_mut().insert("x-public", "1".parse().unwrap());
        response
    })
    .await;
    let upstream = Upstream::parse(&format!("http://{upstream}/base/"), &TlsFiles::default()).unwrap();
    let config = ProxyConfig::new(upstream, Resources::parse(&["shop"]).unwrap());
    let proxy = proxy(Arc::new(MemoryGate::new()), config).await;
    let mut asked = request("PUT", "/a%20b/c?d=e", Some(5));
    for (name, value) in [("connection", "x-hop"), ("x-hop", "1"), ("x-own", "2"), ("keep-alive", "5")] {
        asked.headers_mut().insert(name, value.parse().unwrap());
    }
    let answer = ask(proxy, asked).await;
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT, "the service's own status");
    assert_eq!(problem(&answer), None);
    assert_eq!(answer.body(), "127.0.0.1|shop.example|http|5|-|2|-|/base/a%20b/c?d=e");
    assert!(answer.headers().contains_key("x-public") && !answer.headers().contains_key("x-private"));
}

#[tokio::test]
async fn trailers_pass() {
    let upstream = service(|request| async move {
        let trailers = request.into_body().collect().await.unwrap().trailers().cloned().unwrap();
        let frames = [Ok(Frame::data(Bytes::from("x"))), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed());
        response.headers_mut().insert("trailer", "x-sum".parse().unwrap());
        response
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let (mut parts, _) = request("PUT", "/r", Some(5)).into_parts();
    parts.headers.insert("te", "trailers".parse().unwrap());
    parts.headers.insert("trailer", "x-sum".parse().unwrap());
    let trailers = [(http::HeaderName::from_static("x-sum"), "42".parse().unwrap())].into_iter().collect();
    let frames = [Ok(Frame::data(Bytes::from("y"))), Ok(Frame::trailers(trailers))];
    let asked = Request::from_parts(parts, StreamBody::new(futures_util::stream::iter(frames)).boxed());
    let answer = client(proxy).await.send_request(asked).await.unwrap();
    let answer = answer.into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["x-sum"], "42");
}

#[tokio::test]
async fn a_body_passes_whatever_the_method_is_and_however_its_end_is_told() {
    let upstream = service(|request| async move {
        let method = request.method().clone();
        let content = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(body(format!("{method} {}", String::from_utf8_lossy(&content))))
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    for method in ["GET", "DELETE", "OPTIONS", "PUT"] {
        for (told, content, whole) in [
            ("transfer-encoding: chunked", "5\r\nhello\r\n6\r\n there\r\n0\r\n\r\n", "hello there"),
            ("content-length: 5", "hello", "hello"),
            ("x-none: 1", "", ""),
        ] {
            let mut stream = TcpStream::connect(proxy).await.unwrap();
            let head = format!(
                "{method} /r HTTP/1.1\r\nhost: x\r\nfencing-token: 5\r\nconnection: close\r\n{told}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            // Behind its head, so that nobody knows yet how long it will be.
            tokio::time::sleep(Duration::from_millis(5)).await;
            stream.write_all(content.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with(&format!("\r\n\r\n{method} {whole}")), "{method} {told}: {answer}");
        }
    }
}

/// A service that echoes what comes over a WebSocket.
async fn echo() -> std::net::SocketAddr {
    raw(|mut stream| async move {
        if !read_head(&mut stream).await.to_lowercase().contains("upgrade: websocket") {
            return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
        let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(switch.as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
    })
    .await
}

/// A WebSocket of who shows `token`.
async fn websocket(proxy: std::net::SocketAddr, token: &str) -> TcpStream {
    let mut socket = TcpStream::connect(proxy).await.unwrap();
    let ask = format!(
        "GET /r HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nfencing-token: {token}\r\n\r\n"
    );
    socket.write_all(ask.as_bytes()).await.unwrap();
    let head = read_head(&mut socket).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    socket
}

async fn echoes(socket: &mut TcpStream) {
    for word in ["hello", "again"] {
        socket.write_all(word.as_bytes()).await.unwrap();
        let mut echo = [0; 5];
        socket.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, word.as_bytes());
    }
}

/// What a reader is answered.
async fn read(proxy: std::net::SocketAddr, token: &str) -> StatusCode {
    let mut asked = request("GET", "/r", None);
    asked.headers_mut().insert("fencing-token", token.parse().unwrap());
    ask(proxy, asked).await.status()
}

#[tokio::test]
async fn a_websocket_passes_until_a_larger_token_comes() {
    let proxy = proxy(Arc::new(MemoryGate::new()), config(echo().await)).await;
    let mut unfenced = request("GET", "/r", None);
    unfenced.headers_mut().insert("connection", "upgrade".parse().unwrap());
    unfenced.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    let answer = crate::support::ask(proxy, unfenced).await;
    assert_eq!(answer.status(), StatusCode::PRECONDITION_REQUIRED, "what follows may change anything");
    let mut socket = websocket(proxy, "5").await;
    echoes(&mut socket).await;
    assert_eq!(put(proxy, "/r", 5).await, StatusCode::OK, "its own holder may do something else beside it");
    assert_eq!(put(proxy, "/r", 6).await, StatusCode::OK);
    assert_eq!(socket.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
}

#[tokio::test]
async fn a_writers_websocket_ends_when_a_reader_comes_and_a_readers_does_not() {
    let proxy = proxy(Arc::new(MemoryGate::new()), config(echo().await)).await;
    let mut writer = websocket(proxy, "5").await;
    echoes(&mut writer).await;
    assert_eq!(read(proxy, "6;shared").await, StatusCode::OK, "its lock is over, or 6 were not given");
    assert_eq!(writer.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
    let mut reader = websocket(proxy, "6;shared").await;
    assert_eq!(read(proxy, "7;shared").await, StatusCode::OK);
    echoes(&mut reader).await;
    assert_eq!(put(proxy, "/r", 8).await, StatusCode::OK);
    assert_eq!(reader.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
}

#[tokio::test]
async fn a_writer_that_stands_still_in_the_middle_of_a_request_does_not_keep_a_reader_out() {
    let upstream = raw(|mut stream| async move {
        if read_head(&mut stream).await.contains("fencing-token: 5") {
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let mut half = TcpStream::connect(proxy).await.unwrap();
    half.write_all(b"PUT /r HTTP/1.1\r\nhost: x\r\nfencing-token: 5\r\ncontent-length: 10\r\n\r\nhalf")
        .await
        .unwrap();
    until("the mark", async || put(proxy, "/r", 4).await == StatusCode::PRECONDITION_FAILED).await;
    assert_eq!(read(proxy, "6;shared").await, StatusCode::OK);
    let head = read_head(&mut half).await;
    assert!(head.starts_with("HTTP/1.1 412"), "{head}");
    let said = crate::support::read_json(&mut half, &head).await;
    assert_eq!((&said["token"], &said["highest"]), (&5.into(), &6.into()), "{said}");
}

#[tokio::test]
async fn who_stands_still_in_the_middle_of_a_request_does_not_keep_the_next_one_out() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // All of this test is on one thread.
    let _counting = metrics::set_default_local_recorder(&recorder);
    let upstream = raw(|mut stream| async move {
        let head = read_head(&mut stream).await;
        if head.contains("fencing-token: 5") {
            // Until what was cut off has come to its end.
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let mut half = TcpStream::connect(proxy).await.unwrap();
    half.write_all(b"PUT /r HTTP/1.1\r\nhost: x\r\nfencing-token: 5\r\ncontent-length: 10\r\n\r\nhalf")
        .await
        .unwrap();
    let mut stale = 0;
    until("the mark", async || {
        let answered = put(proxy, "/r", 4).await;
        stale += u64::from(answered == StatusCode::PRECONDITION_FAILED);
        stale > 0
    })
    .await;
    assert_eq!(put(proxy, "/r", 6).await, StatusCode::OK);
    let head = read_head(&mut half).await;
    assert!(head.starts_with("HTTP/1.1 412"), "{head}");
    let said = crate::support::read_json(&mut half, &head).await;
    assert_eq!((&said["token"], &said["highest"]), (&5.into(), &6.into()), "{said}");
    let counted = snapshotter.snapshot().into_vec();
    let refused: u64 = counted
        .iter()
        .filter(|(key, ..)| key.key().name() == "tollgate_fence_rejected_total")
        .map(|(.., value)| if let DebugValue::Counter(count) = value { *count } else { 0 })
        .sum();
    assert_eq!(refused, 1 + stale, "it is counted as those are that come too late");
}

#[tokio::test]
async fn a_service_that_is_not_there_or_breaks_off_is_told_apart() {
    let unused = tollgate_testkit::engines::spare_port();
    let nobody = unused.address();
    let away = proxy(Arc::new(MemoryGate::new()), config(nobody)).await;
    let answer = ask(away, request("PUT", "/r", Some(5))).await;
    assert_eq!((answer.status(), problem(&answer)), (StatusCode::BAD_GATEWAY, Some("unreachable")));
    assert_eq!(put(away, "/r", 6).await, StatusCode::BAD_GATEWAY, "and nothing waits for it");

    let came = Arc::new(AtomicUsize::new(0));
    let counted = came.clone();
    let breaks = raw(move |mut stream| {
        let counted = counted.clone();
        async move {
            read_head(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let broken = proxy(Arc::new(MemoryGate::new()), config(breaks)).await;
    let answer = ask(broken, request("PUT", "/r", Some(5))).await;
    assert_eq!((answer.status(), problem(&answer)), (StatusCode::BAD_GATEWAY, Some("broken")));
    assert_eq!(came.load(Ordering::SeqCst), 1, "nothing is sent again");
    let next = ask(broken, request("PUT", "/r", Some(6))).await;
    assert_eq!(problem(&next), Some("broken"), "its connection is closed, so that it is over");
}

#[tokio::test]
async fn a_request_that_breaks_off_is_over_when_the_service_has_closed_its_side() {
    let go = Arc::new(Semaphore::new(0));
    let held = go.clone();
    let upstream = raw(move |mut stream| {
        let go = held.clone();
        async move {
            let head = read_head(&mut stream).await;
            if head.contains("fencing-token: 5") {
                // It has seen half a body, and still works on that.
                stream.read_to_end(&mut Vec::new()).await.unwrap();
                go.acquire().await.unwrap().forget();
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let mut config = config(upstream);
    config.drain = Duration::from_millis(200);
    let proxy = proxy(Arc::new(MemoryGate::new()), config).await;
    let mut half = TcpStream::connect(proxy).await.unwrap();
    half.write_all(b"PUT /r HTTP/1.1\r\nhost: x\r\nfencing-token: 5\r\ncontent-length: 10\r\n\r\nhalf")
        .await
        .unwrap();
    until("the mark", async || put(proxy, "/r", 4).await == StatusCode::PRECONDITION_FAILED).await;
    drop(half);
    for _ in 0..3 {
        assert_eq!(put(proxy, "/r", 6).await, StatusCode::SERVICE_UNAVAILABLE);
    }
    go.add_permits(1);
    until("its end", async || put(proxy, "/r", 6).await == StatusCode::OK).await;
}

#[tokio::test]
async fn an_encrypted_service_is_reached_if_it_is_trusted() {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(signed.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let upstream = raw(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut some = [0; 4096];
            let _ = stream.read(&mut some).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await.unwrap();
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, signed.cert.pem()).unwrap();
    let url = format!("https://localhost:{}", upstream.port());
    for (ca, status) in [(Some(ca), 200), (None, 502)] {
        let files = TlsFiles { ca, ..TlsFiles::default() };
        let Ok(upstream) = Upstream::parse(&url, &files) else {
            // A system that trusts nobody says so before anybody connects.
            continue;
        };
        let config = ProxyConfig::new(upstream, Resources::parse(&["shop"]).unwrap());
        let proxy = proxy(Arc::new(MemoryGate::new()), config).await;
        assert_eq!(put(proxy, "/r", 5).await.as_u16(), status);
    }
}
