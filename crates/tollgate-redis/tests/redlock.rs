//! Redlock under the suite every backend must pass, on three and on five nodes.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tollgate_core::{Backend, BoxFuture, Clock, Keeper, Result};
use tollgate_redis::{Initialized, RedlockBackend, RedlockConfig, redlock_hash_of, redlock_init};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Deed, Proxy, Resp};
use tollgate_testkit::{Chaos, Subject, conformance};

/// So many independent Redises for all cases: their names differ.
struct Redlock {
    name: &'static str,
    nodes: usize,
    started: OnceLock<String>,
}

impl Redlock {
    fn subject(name: &'static str, nodes: usize) -> Arc<dyn Subject> {
        Arc::new(Self { name, nodes, started: OnceLock::new() })
    }

    fn start(&self) -> String {
        let nodes: Vec<SocketAddr> = (0..self.nodes)
            .map(|node| {
                // Engines are shared by those who want the same, and these must differ.
                let config = Config::redis().argument("--proc-title-template");
                engines::shared(&config.argument(format!("{} {}", self.name, node + 1))).address()
            })
            .collect();
        let address = joined(&nodes);
        let init = Keeper::global().expect("a test can start a thread").spawn({
            let config = config(&address);
            async move { redlock_init(&config).await }
        });
        let done = wait_for(init).expect("it does not panic").expect("new nodes can be set up");
        assert_eq!(done, Initialized::Now);
        address
    }
}

fn joined(nodes: &[SocketAddr]) -> String {
    nodes.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

fn config(address: &str) -> RedlockConfig {
    RedlockConfig::new(address.split(',').map(|node| format!("redis://{node}/")).collect())
}

/// Waits on this thread, which may belong to a runtime, for something that goes on elsewhere.
fn wait_for<F: Future>(future: F) -> F::Output {
    Keeper::global().expect("a test can start a thread").block_on(future)
}

impl Subject for Redlock {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        self.started.get_or_init(|| self.start()).clone()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            Ok(Arc::new(RedlockBackend::connect(config(address), clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let nodes: Vec<SocketAddr> =
            address.split(',').map(|node| node.parse().expect("an address")).collect();
        let proxy = Proxy::before_all(&nodes, Resp);
        let address = joined(&proxy.addresses());
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::RepeatElsewhere })
    }
}

/// Whether a request is one of `operation`: its script, or the plain command that takes a free lock.
fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let script = match operation {
        // Whoever waits asks again and again, by the same request.
        Operation::TryAcquire | Operation::Acquire if takes(frame) => return true,
        Operation::TryAcquire | Operation::Acquire => "acquire",
        Operation::Withdraw => "retract",
        Operation::Release => "release",
        Operation::Extend => "renew",
    };
    contains(frame, redlock_hash_of(script).expect("a script of ours").as_bytes())
}

fn takes(frame: &[u8]) -> bool {
    contains(frame, b"\r\nSET\r\n") && contains(frame, b" ~")
}

fn contains(frame: &[u8], part: &[u8]) -> bool {
    frame.windows(part.len()).any(|bytes| bytes == part)
}

fn main() {
    conformance::main(vec![Redlock::subject("redlock3", 3), Redlock::subject("redlock5", 5)])
}
