//! What the gate costs: the proxy with each store beside the same proxy without one, in one run.
//!
//! A service, the proxy and its clients have a thread each. 16 connections send one small PUT after the other, with the token of
//! one holder. Contenders take turns, and what counts is the ratio within a round.
#![allow(clippy::unwrap_used, missing_docs)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tollgate_core::Gate;
use tollgate_fence::{Proxy, ProxyConfig, Resources, Upstream};
use tollgate_testkit::engines::{self, Config};

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 7;
const TURN: Duration = Duration::from_millis(1000);

/// Runs `serve` on a thread and a runtime of its own; where it listens.
fn on_own_thread<F: Future<Output = ()>>(
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> SocketAddr {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            serve(listener).await;
        });
    });
    told.recv().unwrap()
}

async fn service(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let answer = service_fn(async |request: Request<hyper::body::Incoming>| {
                request.into_body().collect().await.unwrap();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

fn proxy(upstream: SocketAddr, store: Option<String>) -> SocketAddr {
    on_own_thread(move |listener| async move {
        let gate: Option<Arc<dyn Gate>> = match store {
            Some(url) => Some(tollgate::gate(&url).await.unwrap()),
            None => None,
        };
        let upstream = Upstream::parse(&format!("http://{upstream}"), &Default::default()).unwrap();
        let config = ProxyConfig::new(upstream, Resources::parse(&["/orders/{id}/*=orders/{id}"]).unwrap());
        Proxy::new(gate, config).serve(listener, std::future::pending()).await;
    })
}

/// Requests a second.
async fn measure(proxy: SocketAddr, time: Duration) -> f64 {
    let ends = Instant::now() + time;
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            tokio::spawn(async move {
                let stream = TcpStream::connect(proxy).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                let mut count = 0_u32;
                while Instant::now() < ends {
                    sender.ready().await.unwrap();
                    let request =
                        Request::put("/orders/42/lines").header("host", "shop").header("fencing-token", 42);
                    let request = request.body(Full::new(Bytes::from_static(b"one more"))).unwrap();
                    let answer = sender.send_request(request).await.unwrap();
                    assert_eq!(answer.status(), 200);
                    answer.into_body().collect().await.unwrap();
                    count += 1;
                }
                count
            })
        })
        .collect();
    let began = Instant::now();
    let mut all = 0;
    for client in clients {
        all += client.await.unwrap();
    }
    f64::from(all) / began.elapsed().as_secs_f64()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let [redis, postgres, mariadb] = [Config::redis(), Config::postgres(), Config::mariadb()]
        .map(|config| engines::private(&config).unwrap());
    let upstream = on_own_thread(service);
    let contenders = [
        ("no gate", None),
        ("memory:", Some("memory:".to_owned())),
        ("file:", Some(format!("file:{}", folder.path().display()))),
        ("redis://", Some(format!("redis://{}/", redis.address()))),
        ("postgres://", Some(format!("postgres://postgres@{}/postgres", postgres.address()))),
        ("mysql://", Some(format!("mysql://root@{}/test", mariadb.address()))),
    ];
    let proxies = contenders.map(|(name, store)| (name, proxy(upstream, store)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for round in 0..=ROUNDS {
        let speeds = proxies.iter().map(|(_, address)| runtime.block_on(measure(*address, TURN))).collect();
        // The first one is for warming up.
        if round > 0 {
            rounds.push(speeds);
        }
    }
    println!("{CONNECTIONS} connections, median of {ROUNDS} rounds of {TURN:?}");
    println!("{:12} {:>12} {:>16}", "store", "requests/s", "of no gate");
    for (place, (name, _)) in proxies.iter().enumerate() {
        let speed = median(rounds.iter().map(|round| round[place]).collect());
        let ratio = median(rounds.iter().map(|round| round[place] / round[0]).collect());
        println!("{name:12} {speed:12.0} {ratio:16.2}");
    }
}
