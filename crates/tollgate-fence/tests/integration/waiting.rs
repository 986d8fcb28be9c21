//! For whom a larger token waits, and until when: for the service, and never for a client.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{
    PIECE, PIECES, ask, body, config, large, problem, proxy, put, raw, read_head, request, service,
};
use crate::support::{stalled, until};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tollgate_core::{Gate, MemoryGate, Token};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A client of which nothing is read until somebody does.
async fn send(proxy: std::net::SocketAddr, token: u64, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let head = format!("PUT /r HTTP/1.1\r\nhost: x\r\nfencing-token: {token}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

fn is_token(request: &Request<hyper::body::Incoming>, token: &str) -> bool {
    request.headers()["fencing-token"] == token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_its_answer_keeps_nobody_waiting() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let upstream = service(move |request| {
        let counted = counted.clone();
        async move { Response::new(if is_token(&request, "5") { large(counted) } else { body("ok") }) }
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let mut old = send(proxy, 5, "").await;
    let ahead = stalled(&made).await;
    assert!(ahead < PIECES / 2, "{ahead} pieces were taken though nobody reads them");
    assert_eq!(put(proxy, "/r", 6).await, StatusCode::OK);
    assert!(made.load(Ordering::SeqCst) > PIECES, "the service has answered to the end");
    let mut seen = Vec::new();
    // Reset or closed: it is not taken for a whole one.
    let _ = old.read_to_end(&mut seen).await;
    assert!(seen.len() < PIECE * PIECES, "what was not read is not kept");
}

#[tokio::test]
async fn who_reads_slowly_gets_the_rest_of_a_small_answer() {
    let go = Arc::new(Semaphore::new(1));
    let pieces = go.clone();
    let upstream = service(move |request| {
        let go = pieces.clone();
        async move {
            if !is_token(&request, "5") {
                return Response::new(body("ok"));
            }
            let piece = move |number| {
                let go = go.clone();
                async move {
                    go.acquire().await.unwrap().forget();
                    (number < 4).then(|| (Ok(Frame::data(Bytes::from("piece"))), number + 1))
                }
            };
            Response::new(StreamBody::new(Box::pin(futures_util::stream::unfold(0, piece))).boxed())
        }
    })
    .await;
    let gate = Arc::new(MemoryGate::new());
    let proxy = proxy(gate.clone(), config(upstream)).await;
    let old = crate::support::client(proxy).await.send_request(request("PUT", "/r", Some(5))).await.unwrap();
    let mut old = old.into_body();
    assert_eq!(old.frame().await.unwrap().unwrap().into_data().unwrap(), "piece");
    let new = tokio::spawn(put(proxy, "/r", 6));
    until("the mark", async || gate.highest("r").await.unwrap() == Token::new(6).ok()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!new.is_finished(), "the service has not answered yet");
    go.add_permits(9);
    assert_eq!(new.await.unwrap(), StatusCode::OK);
    assert_eq!(old.collect().await.unwrap().to_bytes(), "piecepiecepiece");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let upstream = service(move |request| async move {
        if !is_token(&request, "5") {
            return Response::new(body("ok"));
        }
        let piece = |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok(Frame::data(Bytes::from("more"))), ()))
        };
        Response::new(StreamBody::new(Box::pin(futures_util::stream::unfold((), piece))).boxed())
    })
    .await;
    let mut config = config(upstream);
    (config.drain, config.timeout) = (Duration::from_millis(400), Duration::from_millis(300));
    let proxy = proxy(Arc::new(MemoryGate::new()), config).await;
    let mut old = send(proxy, 5, "").await;
    let head = read_head(&mut old).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    until("the next one", async || put(proxy, "/r", 6).await == StatusCode::OK).await;
    // It comes to an end, however.
    let _ = old.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_for_ever_when_its_client_is_gone() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let upstream = service(move |_| {
        let made = counted.clone();
        async move {
            let piece = move |()| {
                made.fetch_add(1, Ordering::SeqCst);
                async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Some((Ok(Frame::data(Bytes::from("more"))), ()))
                }
            };
            Response::new(StreamBody::new(Box::pin(futures_util::stream::unfold((), piece))).boxed())
        }
    })
    .await;
    let mut config = config(upstream);
    config.timeout = Duration::from_millis(400);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(tollgate_fence::Proxy::new(Some(Arc::new(MemoryGate::new())), config).serve(
        listener,
        async move {
            let _ = stopped.await;
        },
    ));
    let mut client = send(address, 5, "").await;
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200"));
    drop(client);
    let before = made.load(Ordering::SeqCst);
    tokio::time::timeout(Duration::from_secs(20), stalled(&made)).await.expect("nobody reads it any more");
    assert!(made.load(Ordering::SeqCst) > before, "it was read for a while");
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(20), serving).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn nothing_of_an_old_request_comes_behind_a_larger_token() {
    let overtaken = Arc::new(AtomicBool::new(false));
    let late = Arc::new(Mutex::new(Vec::new()));
    let (seen, noted) = (overtaken.clone(), late.clone());
    let upstream = raw(move |mut stream| {
        let (overtaken, late) = (seen.clone(), noted.clone());
        async move {
            let is_old = read_head(&mut stream).await.contains("fencing-token: 5");
            overtaken.fetch_or(!is_old, Ordering::SeqCst);
            // Before it has read anything of the body.
            stream.write_all(OK).await.unwrap();
            let mut some = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut some).await {
                if is_old && overtaken.load(Ordering::SeqCst) {
                    late.lock().unwrap().push(length);
                }
            }
        }
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    let mut old = send(proxy, 5, "content-length: 1000000\r\n").await;
    old.write_all(&[b'x'; 1000]).await.unwrap();
    let head = read_head(&mut old).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(put(proxy, "/r", 6).await, StatusCode::OK);
    for _ in 0..20 {
        // Nobody may want it any more.
        let _ = old.write_all(&[b'y'; 10_000]).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(late.lock().unwrap().as_slice(), &[0; 0], "bytes of the old request came after the new one");
}

#[tokio::test]
async fn a_connection_that_is_reset_ends_nothing_while_the_service_may_be_at_work() {
    let upstream = raw(|mut stream| async move {
        if read_head(&mut stream).await.contains("fencing-token: 5") {
            return sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
        stream.write_all(OK).await.unwrap();
    })
    .await;
    let mut config = config(upstream);
    (config.drain, config.timeout) = (Duration::from_millis(50), Duration::from_secs(1));
    let (proxy, began) = (proxy(Arc::new(MemoryGate::new()), config).await, Instant::now());
    let broken = ask(proxy, request("PUT", "/r", Some(5))).await;
    assert_eq!((broken.status(), problem(&broken)), (StatusCode::BAD_GATEWAY, Some("broken")));
    let busy = ask(proxy, request("PUT", "/r", Some(6))).await;
    assert_eq!((busy.status(), problem(&busy)), (StatusCode::SERVICE_UNAVAILABLE, Some("busy")));
    until("the next one", async || put(proxy, "/r", 6).await == StatusCode::OK).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_service_that_does_not_read_is_late_and_a_client_that_does_not_write_is_not() {
    let upstream = raw(|mut stream| async move {
        if read_head(&mut stream).await.contains("fencing-token: 5") {
            return std::future::pending().await;
        }
        stream.read_exact(&mut [0; 10]).await.unwrap();
        stream.write_all(OK).await.unwrap();
    })
    .await;
    let mut config = config(upstream);
    config.timeout = Duration::from_millis(300);
    let proxy = proxy(Arc::new(MemoryGate::new()), config).await;
    let (parts, _) = request("PUT", "/r", Some(5)).into_parts();
    let asked = Request::from_parts(parts, large(Arc::default()));
    let answer = crate::support::client(proxy).await.send_request(asked).await.unwrap();
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(answer.headers()["fencing-problem"], "late");

    let mut slow = TcpStream::connect(proxy).await.unwrap();
    slow.write_all(b"PUT /s HTTP/1.1\r\nhost: x\r\nfencing-token: 6\r\ncontent-length: 10\r\n\r\nhalf")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(800)).await;
    slow.write_all(b"second").await.unwrap();
    let head = read_head(&mut slow).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[tokio::test]
async fn a_connection_to_the_service_is_used_again() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let upstream = raw(move |mut stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            loop {
                let head = read_head(&mut stream).await;
                if head.contains("content-length: 4") {
                    stream.read_exact(&mut [0; 4]).await.unwrap();
                }
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    let proxy = proxy(Arc::new(MemoryGate::new()), config(upstream)).await;
    for token in 1..20 {
        let (parts, _) = request("PUT", "/r", Some(token)).into_parts();
        let asked = Request::from_parts(parts, body(if token % 2 == 0 { "" } else { "some" }));
        assert_eq!(ask(proxy, asked).await.status(), StatusCode::OK);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
