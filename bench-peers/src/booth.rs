//! Where everything is counted that passes on its way to an engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_bench::{Meter, Traffic};
use tollgate_testkit::proxy::{LengthPrefixed, Proxy, Resp};

use crate::engine::EngineName;
use crate::wire::{Counting, Dialect};

/// A proxy before each node of an engine.
pub(crate) struct Booth {
    proxies: Vec<Proxy>,
    /// Where the proxies cannot tell requests themselves.
    requests: Option<Arc<AtomicU64>>,
}

impl Booth {
    /// Proxies before the nodes at `addresses`, which speak as the engine does.
    pub(crate) fn before(engine: EngineName, addresses: &[SocketAddr]) -> Self {
        use EngineName as Is;
        let counting = |dialect| {
            let requests = Arc::new(AtomicU64::new(0));
            let start = |address| Proxy::start(address, Counting::new(dialect, requests.clone()));
            let proxies = addresses.iter().copied().map(start).collect();
            Self { proxies, requests: Some(requests) }
        };
        let proxies: Vec<Proxy> = match engine {
            Is::Etcd | Is::Etcd3 => return counting(Dialect::Http2),
            Is::Postgres => return counting(Dialect::Postgres),
            Is::Mariadb => return counting(Dialect::MySql),
            Is::Redis | Is::RedisDurable | Is::Redlock | Is::Redlock5 => {
                addresses.iter().map(|address| Proxy::start(*address, Resp)).collect()
            }
            Is::Zookeeper | Is::Zookeeper3 => {
                let start = |address: &SocketAddr| Proxy::start(*address, LengthPrefixed::zookeeper());
                addresses.iter().map(start).collect()
            }
            // Nobody is asked anything.
            Is::File => Vec::new(),
        };
        Self { proxies, requests: None }
    }

    /// Where clients find the proxies.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(Proxy::address).collect()
    }
}

impl Meter for Booth {
    fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::default();
        for proxy in &self.proxies {
            let counts = proxy.counts();
            traffic.connections += counts.connections;
            traffic.requests += counts.requests;
            traffic.bytes_out += counts.bytes_out;
            traffic.bytes_back += counts.bytes_back;
        }
        if let Some(requests) = &self.requests {
            traffic.requests = requests.load(Ordering::Relaxed);
        }
        traffic
    }
}
