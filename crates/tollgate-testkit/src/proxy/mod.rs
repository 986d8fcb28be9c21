//! A TCP proxy that makes trouble: between a client and its engine, while both run.
//!
//! It has a thread of its own, so that a test that blocks its executor does not stop it. Dropping it closes
//! everything and ends the thread. What is switched counts for all bytes that reach the proxy afterwards.

mod connection;
mod counts;
mod door;
mod http2;
mod mysql;
mod native;
mod outbox;
mod postgres;
mod protocol;
mod resp;
mod rule;
mod switches;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use connection::Shared;
use counts::Counters;
use door::{Connections, Done, Door, Order};
use switches::{Flow, Switches};

pub use counts::Counts;
pub use door::ConnectionId;
pub use http2::Http2;
pub use mysql::MySql;
pub use native::Native;
pub use postgres::Postgres;
pub use protocol::{Answer, Conversation, Garbled, LengthPrefixed, Lines, Protocol, Raw, Request};
pub use resp::Resp;
pub use rule::{Caught, Close, Deed, Which};
pub use switches::{Direction, Discard, Fate};

/// A proxy in front of an engine.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    running: Option<Running>,
    /// Those in front of the engine's other nodes, to which the same is done.
    others: Vec<Proxy>,
}

struct Running {
    orders: mpsc::UnboundedSender<(Order, Done)>,
    thread: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy on a free port of the loopback, in front of the engine at `upstream`.
    pub fn start(upstream: SocketAddr, protocol: impl Protocol) -> Self {
        let socket = listen_on_a_port_to_keep();
        let address = socket.local_addr().expect("a bound port has an address");
        socket.set_nonblocking(true).expect("a socket can be set up");
        let shared = Arc::new(Shared {
            upstream,
            protocol: Box::new(protocol),
            switches: Switches::new(),
            counters: Counters::default(),
        });
        let connections = Arc::new(Connections::default());
        let (orders, given) = mpsc::unbounded_channel();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let (served, known) = (shared.clone(), connections.clone());
        let thread = std::thread::Builder::new()
            .name("chaos-proxy".to_owned())
            // The runtime ends with the thread, and with it every connection.
            .spawn(move || runtime.block_on(async { Door::open(socket, served, known).keep(given).await }))
            .expect("a test can start a thread");
        Self { address, shared, connections, running: Some(Running { orders, thread }), others: Vec::new() }
    }

    /// Starts a proxy in front of each of several nodes, as one: what is done to it is done in front of every node.
    pub fn before_all(nodes: &[SocketAddr], protocol: impl Protocol + Copy) -> Self {
        let mut proxies = nodes.iter().map(|node| Self::start(*node, protocol));
        let mut first = proxies.next().expect("an engine has a node");
        first.others = proxies.collect();
        first
    }

    /// Where clients find it, or its first node.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients find all nodes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.all().map(|proxy| proxy.address).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// Closes every connection that clients have opened by now; they are closed when this returns.
    pub fn cut(&self, close: Close) {
        self.all().for_each(|proxy| proxy.order(Order::Cut(close)));
    }

    /// Closes one connection to the first node, if it is still open.
    pub fn cut_one(&self, connection: ConnectionId, close: Close) {
        self.order(Order::CutOne(connection, close));
    }

    /// The connections to the first node that are open, oldest first.
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.connections.open().keys().copied().collect()
    }

    /// Refuses new connections, as a port does on which nobody listens, or accepts them again. The port stays
    /// the proxy's.
    pub fn refuse(&self, refuse: bool) {
        self.all().for_each(|proxy| proxy.order(Order::Refuse(refuse)));
    }

    /// Delivers everything that goes in `direction` so much later.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.all().for_each(|proxy| proxy.shared.switches.change_way(direction, |way| way.delay = delay));
    }

    /// Delivers nothing any more in `direction`. Connections stay open and can be opened; nobody is told.
    pub fn black_hole(&self, direction: Direction, fate: Fate) {
        self.all()
            .for_each(|proxy| proxy.shared.switches.change_way(direction, |way| way.flow = Flow::Hole(fate)));
    }

    /// Does something to one request to the first node.
    pub fn on(&self, which: Which, deed: Deed) -> Caught {
        self.shared.switches.add_rule(which, deed)
    }

    /// Does something to one request to every node.
    pub fn on_each(&self, which: impl Fn() -> Which, deed: Deed) -> Caught {
        let caught = self.all().map(|proxy| proxy.shared.switches.add_rule(which(), deed));
        Caught::all(caught)
    }

    /// Keeps pushes from clients.
    pub fn discard_pushes(&self, discard: Discard) {
        self.all().for_each(|proxy| proxy.shared.switches.discard(discard));
    }

    /// Ends all trouble: connections are accepted, everything flows, rules are forgotten, and what was held is
    /// delivered. Connections that lost bytes are cut.
    pub fn heal(&self) {
        self.refuse(false);
        self.all().for_each(|proxy| proxy.shared.switches.heal());
    }

    /// What has passed to the first node.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// What has passed to the first node; counting starts again from nothing.
    pub fn take_counts(&self) -> Counts {
        self.shared.counters.take()
    }

    /// Has the door do something, and waits the moment that takes.
    fn order(&self, order: Order) {
        let Running { orders, .. } = self.running.as_ref().expect("it runs until it is dropped");
        let (done, over) = std::sync::mpsc::channel();
        orders.send((order, done)).unwrap_or_else(|_| panic!("the proxy's thread has panicked"));
        let _ = over.recv();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(Running { orders, thread }) = self.running.take() {
            drop(orders);
            // If it panicked, whoever used it has noticed.
            let _ = thread.join();
        }
    }
}

/// Listens on a free port. The kernel takes a port that it chose itself away from a socket that stops
/// listening; one that was asked for stays.
fn listen_on_a_port_to_keep() -> TcpListener {
    loop {
        let chosen = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        // Somebody else may be quicker.
        if let Ok(socket) = TcpListener::bind(chosen.expect("a port is free")) {
            return socket;
        }
    }
}
