//! ZooKeeper under the suite every backend must pass: one server, and three.

#[path = "support/wire.rs"]
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Deed, LengthPrefixed, Proxy};
use tollgate_testkit::{Chaos, Subject, conformance};
use tollgate_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};

/// One ZooKeeper for all cases: their names differ.
struct ZooKeeper {
    name: &'static str,
    nodes: usize,
}

impl Subject for ZooKeeper {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        let config = Config::zookeeper().nodes(self.nodes);
        let engine = engines::shared(
            &config.argument("tickTime=50").argument("syncLimit=80").argument("maxSessionTimeout=3600000"),
        );
        let nodes: Vec<_> = engine.nodes().iter().map(|node| node.address().to_string()).collect();
        nodes.join(",")
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let mut config = ZooKeeperConfig::from_url(&format!("zookeeper://{address}/"))?;
            config.tick = Duration::from_millis(50);
            Ok(Arc::new(ZooKeeperBackend::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let nodes: Vec<SocketAddr> =
            address.split(',').map(|node| node.parse().expect("an address")).collect();
        // Which of them a client talks to is its own choice, and a rule waits for a request to each: so there is one.
        let proxy = Proxy::start(nodes[0], LengthPrefixed::zookeeper());
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: wire::asks_for, repeat: Deed::Repeat })
    }
}

fn main() {
    conformance::main(vec![
        Arc::new(ZooKeeper { name: "zookeeper", nodes: 1 }) as Arc<dyn Subject>,
        Arc::new(ZooKeeper { name: "zookeeper3", nodes: 3 }),
    ])
}
