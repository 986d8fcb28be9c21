//! More clients than the proxy may have connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    ask, body, client, config, problem, proxy, put, raw, read_head, request, service, until,
};
use http::{Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tollgate_core::MemoryGate;

const MOST: usize = 8;

async fn crowded(upstream: SocketAddr) -> SocketAddr {
    let mut config = config(upstream);
    config.connections = MOST;
    proxy(Arc::new(MemoryGate::new()), config).await
}

async fn idle(proxy: SocketAddr, many: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..many {
        streams.push(TcpStream::connect(proxy).await.unwrap());
    }
    streams
}

/// Whether the other side has closed it.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut [0])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test]
async fn connections_that_say_nothing_make_room_for_others() {
    let upstream = service(|_| async { Response::new(body("ok")) }).await;
    let proxy = crowded(upstream).await;
    let mut first = idle(proxy, MOST).await;
    // One of them in the middle of a head.
    first[1].write_all(b"GET /r HTTP/1.1\r\nho").await.unwrap();
    let mut holder = client(proxy).await;
    assert_eq!(holder.send_request(request("PUT", "/r", Some(5))).await.unwrap().status(), StatusCode::OK);
    let _more = idle(proxy, MOST - 3).await;
    let began = Instant::now();
    assert_eq!(holder.send_request(request("PUT", "/r", Some(5))).await.unwrap().status(), StatusCode::OK);
    assert_eq!(put(proxy, "/r", 6).await, StatusCode::OK);
    assert!(began.elapsed() < Duration::from_secs(5), "no time limit was waited for");
    let mut closed = 0;
    for stream in &mut first {
        closed += usize::from(is_closed(stream).await);
    }
    assert!(closed >= MOST - 2, "{closed} of the oldest were closed");
}

#[tokio::test]
async fn a_connection_whose_request_is_under_way_is_not_closed_for_another() {
    let (go, came) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (go.clone(), came.clone());
    let upstream = service(move |_| {
        let (go, came) = (held.clone(), counted.clone());
        async move {
            came.fetch_add(1, Ordering::SeqCst);
            go.acquire().await.unwrap().forget();
            Response::new(body("ok"))
        }
    })
    .await;
    let proxy = crowded(upstream).await;
    let busy: Vec<_> = (0..MOST).map(|_| tokio::spawn(ask(proxy, request("PUT", "/r", Some(5))))).collect();
    until("all of them", async || came.load(Ordering::SeqCst) == MOST).await;
    let next = tokio::spawn(ask(proxy, request("PUT", "/r", Some(5))));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!next.is_finished() && came.load(Ordering::SeqCst) == MOST, "it waits to be taken");
    go.add_permits(MOST + 1);
    for asked in busy.into_iter().chain([next]) {
        assert_eq!(asked.await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_fetched_yet_is_not_cut_off_for_another_client() {
    const LONG: usize = 8 * 1024 * 1024;
    let upstream = service(|_| async { Response::new(body(vec![b'x'; LONG])) }).await;
    let proxy = crowded(upstream).await;
    let mut reader = TcpStream::connect(proxy).await.unwrap();
    reader.write_all(b"GET /r HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _others = idle(proxy, 3 * MOST).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut all = Vec::new();
    reader.read_to_end(&mut all).await.unwrap();
    assert!(all.len() > LONG, "{} bytes of {LONG}", all.len());
}

#[tokio::test]
async fn a_websocket_counts_as_long_as_it_is_open() {
    let upstream = raw(|mut stream| async move {
        if !read_head(&mut stream).await.contains("upgrade: websocket") {
            return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
        let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(switch.as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let proxy = crowded(upstream).await;
    let mut sockets = idle(proxy, MOST).await;
    for socket in &mut sockets {
        let ask = "GET /r HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nfencing-token: 5\r\n\r\n";
        socket.write_all(ask.as_bytes()).await.unwrap();
        assert!(read_head(socket).await.starts_with("HTTP/1.1 101"));
    }
    let next = tokio::spawn(put(proxy, "/other", 5));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!next.is_finished(), "it waits to be taken");
    for socket in &mut sockets {
        socket.write_all(b"x").await.unwrap();
        assert_eq!(socket.read_u8().await.unwrap(), b'x', "none of them was closed");
    }
    sockets.pop();
    assert_eq!(next.await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn connections_to_the_service_are_counted_until_the_service_is_done() {
    let (go, open) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (go.clone(), open.clone());
    let upstream = raw(move |mut stream| {
        let (go, open) = (held.clone(), counted.clone());
        async move {
            let head = read_head(&mut stream).await;
            if head.starts_with("PUT /slow") {
                open.fetch_add(1, Ordering::SeqCst);
                // Its client has gone away meanwhile, and it works on.
                go.acquire().await.unwrap().forget();
                open.fetch_sub(1, Ordering::SeqCst);
            }
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
    })
    .await;
    let proxy = crowded(upstream).await;
    for number in 0..MOST {
        let mut gone = TcpStream::connect(proxy).await.unwrap();
        let ask = format!("PUT /slow{number} HTTP/1.1\r\nhost: x\r\nfencing-token: 5\r\n\r\n");
        gone.write_all(ask.as_bytes()).await.unwrap();
        until("it is there", async || open.load(Ordering::SeqCst) > number).await;
    }
    let refused = ask(proxy, request("PUT", "/r", Some(5))).await;
    assert_eq!((refused.status(), problem(&refused)), (StatusCode::SERVICE_UNAVAILABLE, Some("full")));
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(open.load(Ordering::SeqCst), MOST);
    go.add_permits(MOST);
    assert_eq!(put(proxy, "/r", 5).await, StatusCode::OK);
}

#[tokio::test]
async fn connections_that_rest_make_room_for_those_that_are_needed() {
    let upstream = service(|_| async { Response::new(body("ok")) }).await;
    let proxy = crowded(upstream).await;
    for _ in 0..3 {
        let asked: Vec<_> =
            (0..2 * MOST).map(|_| tokio::spawn(ask(proxy, request("PUT", "/r", Some(5))))).collect();
        for asked in asked {
            assert_eq!(asked.await.unwrap().status(), StatusCode::OK);
        }
    }
}
