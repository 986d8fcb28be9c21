//! A lock server on a thread of its own, with a real socket and a real file.

// Not every test program uses all of it.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tollgate_embedded::durable::{Durability, Options, RedbStore};
use tollgate_server::native::Refusal;
use tollgate_server::{TableService, native};

/// A server, until it is stopped or dropped.
pub(crate) struct Server {
    address: SocketAddr,
    orders: Option<oneshot::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// How a server ends.
enum Order {
    /// It stores what it has, and says goodbye.
    Stop,
    /// It is gone at once, with its connections.
    Kill,
}

impl Server {
    /// Starts a server on the file in `folder`, at a free port or at `port`.
    pub(crate) fn start(folder: &Path, durability: Durability, port: u16) -> Self {
        Self::with_room(folder, durability, port, usize::MAX)
    }

    /// The same with a limit of connections.
    pub(crate) fn with_room(folder: &Path, durability: Durability, port: u16, room: usize) -> Self {
        let file = folder.join("locks.redb");
        let (ready, started) = mpsc::channel();
        let (orders, given) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("lock-server".to_owned())
            .spawn(move || run(file, durability, (port, room), &ready, given))
            .expect("a test can start a thread");
        let address = started.recv().expect("the server starts");
        Self { address, orders: Some(orders), thread: Some(thread) }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it cleanly.
    pub(crate) fn stop(mut self) {
        self.end(Order::Stop);
    }

    /// Ends it as a crash of its process does: what is not on the disk by now is lost.
    pub(crate) fn kill(mut self) {
        self.end(Order::Kill);
    }

    fn end(&mut self, order: Order) {
        if let Some(orders) = self.orders.take() {
            let _ = orders.send(order);
        }
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Order::Kill);
    }
}

fn run(
    file: PathBuf,
    durability: Durability,
    (port, room): (u16, usize),
    ready: &mpsc::Sender<SocketAddr>,
    given: oneshot::Receiver<Order>,
) {
    let options = Options { durability, token_floor: None, longest: Duration::from_secs(7200) };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let store = RedbStore::open(&file).expect("the store opens");
        let (service, running) = TableService::open(store, &options).expect("the server starts");
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        ready.send(listener.local_addr().expect("a bound socket has an address")).expect("the test waits");
        let accepting = service.clone();
        spawn_local(async move {
            let open = Rc::new(());
            while let Ok((stream, _)) = listener.accept().await {
                // It is slower without.
                let _ = stream.set_nodelay(true);
                if Rc::strong_count(&open) > room {
                    spawn_local(native::refuse(stream, Refusal::Full));
                    continue;
                }
                let (service, counted) = (accepting.clone(), open.clone());
                spawn_local(async move {
                    native::serve(stream, Vec::new(), service).await;
                    drop(counted);
                });
            }
        });
        let mut running = std::pin::pin!(running.run());
        tokio::select! {
            ended = &mut running => ended.expect("the disk works"),
            order = given => if let Ok(Order::Stop) = order {
                service.stop();
                running.await.expect("the disk works");
                // Connections say goodbye.
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
        }
    });
    drop(tasks);
    runtime.shutdown_background();
}
