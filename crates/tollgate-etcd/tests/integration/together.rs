//! Many claims of one client in one queue, which it reads once for all of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{locks, secs, until, url};
use tokio::task::JoinSet;
use tollgate_core::Locks;
use tollgate_testkit::engines::{self, Config, Data};
use tollgate_testkit::scale::scale;

/// Tasks that take one lock again and again, and what they saw.
struct Takers {
    tasks: JoinSet<()>,
    passages: Arc<AtomicUsize>,
    /// How often one came in beside another of those who came since somebody began to count.
    meetings: Arc<AtomicUsize>,
    counts: Arc<AtomicBool>,
}

impl Takers {
    fn start(clients: &[Locks], tasks: usize) -> Self {
        let (passages, meetings) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (inside, counts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut all = JoinSet::new();
        for task in 0..tasks {
            let locks = clients[task % clients.len()].clone();
            let (passages, meetings, inside, counts) =
                (passages.clone(), meetings.clone(), inside.clone(), counts.clone());
            all.spawn(async move {
                loop {
                    // What is lost with its etcd is taken again.
                    let Ok(guard) = locks.lock("one").ttl(secs(2)).acquire().await else { continue };
                    if counts.load(Ordering::SeqCst) {
                        if inside.fetch_add(1, Ordering::SeqCst) > 0 {
                            meetings.fetch_add(1, Ordering::SeqCst);
                        }
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                    passages.fetch_add(1, Ordering::SeqCst);
                    let _ = guard.release().await;
                }
            });
        }
        Self { tasks: all, passages, meetings, counts }
    }

    /// Waits until so many more have passed.
    async fn pass(&self, many: usize) {
        let before = self.passages.load(Ordering::SeqCst);
        until("they go on", async || self.passages.load(Ordering::SeqCst) >= before + many).await;
    }

    async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_known_of_an_etcd_that_lost_its_data_lets_nobody_in() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let clients = [locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap()];
    let takers = Takers::start(&clients, 20);
    takers.pass(300).await;
    // While this one is in, others come who are then not polled any more: their client goes on knowing the queue.
    let holder = clients[0].lock("one").ttl(secs(2)).acquire().await.unwrap();
    let mut waiting: Vec<_> =
        clients.iter().map(|locks| Box::pin(locks.lock("one").ttl(secs(2)).acquire())).collect();
    for wait in &mut waiting {
        assert!(tokio::time::timeout(Duration::from_millis(500), wait).await.is_err(), "it waits");
    }
    // Nobody else who was there before looks at the new one: what they know stays as it is.
    takers.end().await;
    engine.kill();
    engine.restart(Data::Lost).unwrap();
    // Who was in when it happened cannot know, for as long as the session counts; those who come from here on all do.
    tokio::time::sleep(secs(3)).await;
    let takers = Takers::start(&clients, 20);
    takers.counts.store(true, Ordering::SeqCst);
    takers.pass(100).await;
    assert_eq!(takers.meetings.load(Ordering::SeqCst), 0, "they met each other");
    takers.end().await;
    drop((holder, waiting));
}

/// How many bytes the member at `address` has sent to clients.
fn sent(address: SocketAddr) -> f64 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let name = "etcd_network_client_grpc_sent_bytes_total ";
    page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passage_costs_as_many_bytes_however_many_queue_up_again() {
    let mut costs = Vec::new();
    for tasks in [8, scale(200, 1_000)] {
        let engine = engines::private(&Config::etcd()).unwrap();
        let clients = [locks(&url(&engine)).await.unwrap(), locks(&url(&engine)).await.unwrap()];
        let takers = Takers::start(&clients, tasks);
        takers.pass(tasks * 2).await;
        let (bytes, passages) = (sent(engine.address()), takers.passages.load(Ordering::SeqCst));
        takers.pass(tasks * 3).await;
        let passed = takers.passages.load(Ordering::SeqCst) - passages;
        costs.push((sent(engine.address()) - bytes) / passed as f64);
        takers.end().await;
    }
    println!(
        "bytes that etcd sends for a passage: {:.0} with few who wait, {:.0} with many",
        costs[0], costs[1]
    );
    assert!(costs[1] < costs[0] * 3.0, "{costs:?}");
}
