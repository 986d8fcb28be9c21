//! Sockets: accepts connections within limits, and stops gracefully.

mod body;
mod http;
mod limits;
mod origin;
mod prefixed;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use limits::Limits;
pub use origin::Hosts;

use crate::http::Api;
use crate::native::{self, MAGIC, Refusal};
use crate::own::TableService;
use prefixed::Prefixed;

/// How long a connection that is one too many may take for its first bytes.
const REFUSAL: Duration = Duration::from_secs(1);
/// How long a listener pauses after it could not accept, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// What all connections share.
pub struct Server {
    /// The HTTP API.
    pub api: Api,
    /// What native frames speak to; `None` refuses them.
    pub native: Option<TableService>,
    /// The names that a request may be addressed to.
    pub hosts: Hosts,
    /// How much of everything a client may use.
    pub limits: Limits,
}

/// Serves on `listeners` until `stop` becomes true; then answers what is under way, for at most
/// `patience`.
///
/// Runs on one thread, inside a `LocalSet`.
pub async fn serve(
    server: Rc<Server>,
    listeners: Vec<Listener>,
    mut stop: watch::Receiver<bool>,
    patience: Duration,
) {
    let open = Rc::new(Open::default());
    let mut accepting = JoinSet::new();
    let (finished, mut all_finished) = tokio::sync::mpsc::channel::<()>(1);
    for listener in listeners {
        let (server, open, stop, finished) = (server.clone(), open.clone(), stop.clone(), finished.clone());
        accepting.spawn_local(accept(server, open, listener, stop, finished));
    }
    drop(finished);
    // The sender lives as long as the server.
    let _ = stop.wait_for(|stop| *stop).await;
    accepting.abort_all();
    // Every connection has a sender, so the channel ends when all of them are closed.
    tokio::select! {
        _ = all_finished.recv() => {}
        () = tokio::time::sleep(patience) => {}
    }
}

/// The number of open connections, in all and by address.
#[derive(Default)]
struct Open {
    all: Cell<usize>,
    by_address: RefCell<HashMap<IpAddr, usize>>,
}

/// One open connection; dropped, it is closed.
struct Counted {
    open: Rc<Open>,
    address: Option<IpAddr>,
}

impl Open {
    /// Counts a connection; `Err` with the name of the limit that it exceeds.
    fn count(self: &Rc<Self>, address: Option<IpAddr>, limits: &Limits) -> Result<Counted, &'static str> {
        // Every client of this machine has the same address.
        let address = address.map(|address| address.to_canonical()).filter(|address| !address.is_loopback());
        if self.all.get() >= limits.connections {
            return Err("connections");
        }
        if let Some(address) = address {
            let mut by_address = self.by_address.borrow_mut();
            let count = by_address.entry(address).or_default();
            if *count >= limits.connections_per_address {
                return Err("connections_per_address");
            }
            *count += 1;
        }
        self.all.set(self.all.get() + 1);
        Ok(Counted { open: self.clone(), address })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.all.set(self.open.all.get() - 1);
        if let Some(address) = self.address {
            let mut by_address = self.open.by_address.borrow_mut();
            if let Some(count) = by_address.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    by_address.remove(&address);
                }
            }
        }
    }
}

async fn accept(
    server: Rc<Server>,
    open: Rc<Open>,
    listener: Listener,
    stop: watch::Receiver<bool>,
    finished: tokio::sync::mpsc::Sender<()>,
) {
    loop {
        let accepted = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, address)| {
                // An answer is one small packet, and must not wait for an acknowledgement.
                let _ = stream.set_nodelay(true);
                (Stream::Tcp(stream), Some(address.ip()))
            }),
            Listener::Unix(listener) => {
                listener.accept().await.map(|(stream, _)| (Stream::Unix(stream), None))
            }
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let counted = open.count(address, &server.limits);
        let (server, stop, finished) = (server.clone(), stop.clone(), finished.clone());
        tokio::task::spawn_local(async move {
            match stream {
                Stream::Tcp(stream) => connection(server, stream, Peer::Tcp, counted, stop).await,
                Stream::Unix(stream) => connection(server, stream, Peer::Unix, counted, stop).await,
            }
            drop(finished);
        });
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

/// How a client reached the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Tcp,
    /// No page in a browser can reach this.
    Unix,
}

async fn connection(
    server: Rc<Server>,
    mut stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: Peer,
    counted: Result<Counted, &'static str>,
    mut stop: watch::Receiver<bool>,
) {
    let patience = if counted.is_ok() { server.limits.header_time } else { REFUSAL };
    let first = tokio::select! {
        first = first_bytes(&mut stream) => first,
        () = tokio::time::sleep(patience) => return,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    let Some(first) = first else { return };
    if first == MAGIC {
        // The service itself tells native clients that it stops.
        return match (counted, &server.native) {
            (Ok(_counted), Some(service)) => native::serve(stream, first, service.clone()).await,
            (Ok(_counted), None) => native::refuse(stream, Refusal::OnlyHttp).await,
            (Err(_), _) => native::refuse(stream, Refusal::Full).await,
        };
    }
    let stream = Prefixed::new(first, stream);
    match counted {
        Ok(counted) => {
            http::serve(server, stream, peer, stop).await;
            drop(counted);
        }
        Err(limit) => http::refuse(stream, &server.limits, limit).await,
    }
}

/// What a client says first: enough to tell native frames from everything else. `None` if it says nothing.
async fn first_bytes(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut first = [0; MAGIC.len()];
    let mut length = 0;
    while length < first.len() && MAGIC.starts_with(&first[..length]) {
        match stream.read(&mut first[length..]).await {
            Ok(read @ 1..) => length += read,
            _ if length == 0 => return None,
            // Half a word is not ours to judge.
            _ => break,
        }
    }
    Some(first[..length].to_vec())
}
