//! etcd under the suite every backend must pass: one node, and three.

#[path = "support/wire.rs"]
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;

use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_etcd::{EtcdBackend, EtcdConfig};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Deed, Proxy};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One etcd for all cases: their names differ.
struct Etcd {
    name: &'static str,
    nodes: usize,
}

impl Subject for Etcd {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        let engine = engines::shared(&Config::etcd().nodes(self.nodes));
        joined(engine.nodes().iter().map(|node| node.address()))
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let config = EtcdConfig::from_url(&format!("etcd://{address}/"))?;
            Ok(Arc::new(EtcdBackend::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let nodes: Vec<SocketAddr> =
            address.split(',').map(|node| node.parse().expect("an address")).collect();
        // Which of them a client talks to is its own choice, and a rule waits for a request to each: so there is one.
        let proxy = Proxy::start(nodes[0], wire::http2());
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: wire::asks_for, repeat: Deed::Repeat })
    }

    fn exempt(&self, case: &str) -> Option<&'static str> {
        let repeats = [
            "a_release_that_arrives_twice_touches_nobody_elses_lock",
            "an_acquire_that_arrives_twice_is_one_grant",
            "an_acquire_that_arrives_again_after_the_release_leaves_nothing_that_lasts",
        ];
        repeats.contains(&case).then_some(
            "nothing on the way can repeat a request of HTTP/2: its headers are compressed with the state of its connection",
        )
    }
}

fn joined(addresses: impl Iterator<Item = SocketAddr>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
}

fn main() {
    conformance::main(vec![
        Arc::new(Etcd { name: "etcd", nodes: 1 }) as Arc<dyn Subject>,
        Arc::new(Etcd { name: "etcd3", nodes: 3 }),
    ])
}
