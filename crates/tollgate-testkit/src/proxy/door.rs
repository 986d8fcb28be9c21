//! The proxy's door: who is let in, and who is thrown out.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::Either;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::connection::{self, Cut, Shared};
use super::counts::add;
use super::rule::Close;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long it waits when it cannot accept for want of descriptors.
const BREATH: Duration = Duration::from_millis(10);

/// One connection of a client, numbered in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// What the door is told to do.
pub(super) enum Order {
    Refuse(bool),
    Cut(Close),
    CutOne(ConnectionId, Close),
}

/// Nobody sends anything on it: it ends when the order and everything it led to is done.
pub(super) type Done = std::sync::mpsc::Sender<()>;

/// The connections that are open, each with how to cut it.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<BTreeMap<ConnectionId, mpsc::UnboundedSender<Cut>>>,
}

impl Connections {
    pub(super) fn open(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, mpsc::UnboundedSender<Cut>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listening socket, and all that came through it. Orders and newcomers are dealt with one after the
/// other, so that a cut misses nobody.
pub(super) struct Door {
    socket: TcpListener,
    /// None while it refuses. A registration must not outlive that: the runtime would call it ready for ever.
    listening: Option<tokio::net::TcpListener>,
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    last: u64,
}

impl Door {
    /// Opens the door; called on the proxy's own runtime.
    pub(super) fn open(socket: TcpListener, shared: Arc<Shared>, connections: Arc<Connections>) -> Self {
        let listening = Some(register(&socket).expect("a socket can be registered"));
        Self { socket, listening, shared, connections, last: 0 }
    }

    /// Works until nobody can give orders any more.
    pub(super) async fn keep(mut self, mut orders: mpsc::UnboundedReceiver<(Order, Done)>) {
        loop {
            let newcomer = match &self.listening {
                Some(listener) => Either::Left(listener.accept()),
                None => Either::Right(std::future::pending()),
            };
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some((order, done)) => self.obey(order, done),
                    None => return,
                },
                newcomer = newcomer => match newcomer {
                    Ok((client, _)) => self.let_in(client),
                    Err(_) => tokio::time::sleep(BREATH).await,
                },
            }
        }
    }

    fn obey(&mut self, order: Order, done: Done) {
        match order {
            Order::Refuse(true) => {
                self.listening = None;
                // A listener that is shut down keeps its port. One that was, need not be again.
                let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
            }
            Order::Refuse(false) => {
                rustix::net::listen(&self.socket, BACKLOG).expect("a bound socket can listen");
                if self.listening.is_none() {
                    self.listening = Some(register(&self.socket).expect("a socket can be registered"));
                }
            }
            Order::Cut(how) => {
                // To their clients these are open, though they have not been let in yet.
                while let Ok((waiting, _)) = self.socket.accept() {
                    connection::close(&waiting, how);
                }
                for connection in std::mem::take(&mut *self.connections.open()).into_values() {
                    // One that has just ended need not be cut.
                    let _ = connection.send(Cut { close: how, done: done.clone() });
                }
            }
            Order::CutOne(id, how) => {
                if let Some(connection) = self.connections.open().remove(&id) {
                    let _ = connection.send(Cut { close: how, done });
                }
            }
        }
    }

    fn let_in(&mut self, client: TcpStream) {
        self.last += 1;
        let id = ConnectionId(self.last);
        let (cut, cuts) = mpsc::unbounded_channel();
        self.connections.open().insert(id, cut);
        add(&self.shared.counters.connections, 1);
        let (shared, connections) = (self.shared.clone(), self.connections.clone());
        tokio::spawn(async move {
            connection::serve(client, shared, cuts).await;
            connections.open().remove(&id);
        });
    }
}

fn register(socket: &TcpListener) -> io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::from_std(socket.try_clone()?)
}
