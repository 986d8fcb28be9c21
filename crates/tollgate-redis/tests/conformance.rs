//! Redis under the suite every backend must pass: as it is, with every wake-up discarded, and with a disk.

use std::sync::{Arc, Mutex};

use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_redis::{RedisBackend, RedisConfig, hash_of};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Deed, Discard, Proxy, Resp};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One Redis for all cases: their names differ.
struct Redis {
    name: &'static str,
    config: Config,
    /// Whether messages of pub/sub never arrive, and the proxies that see to it.
    quiet: Option<Mutex<Vec<Proxy>>>,
}

impl Redis {
    fn subject(name: &'static str, config: Config, quiet: bool) -> Arc<dyn Subject> {
        Arc::new(Self { name, config, quiet: quiet.then(Mutex::default) })
    }
}

impl Subject for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        let engine = engines::shared(&self.config).address();
        match &self.quiet {
            None => engine.to_string(),
            Some(proxies) => {
                let mut proxies = proxies.lock().expect("no case panics here");
                if proxies.is_empty() {
                    let proxy = Proxy::start(engine, Resp);
                    proxy.discard_pushes(Discard::All);
                    proxies.push(proxy);
                }
                proxies[0].address().to_string()
            }
        }
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let config = RedisConfig::from_url(&format!("redis://{address}/"))?;
            Ok(Arc::new(RedisBackend::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let proxy = Proxy::start(address.parse().expect("an address"), Resp);
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::RepeatElsewhere })
    }
}

/// Whether a request is one of `operation`: its script, or the plain command that takes a free lock.
fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let (script, end): (_, &[u8]) = match operation {
        Operation::TryAcquire | Operation::Acquire if takes(frame) => return true,
        Operation::TryAcquire => ("acquire", b"$1\r\n0\r\n"),
        Operation::Acquire => ("acquire", b"$1\r\n1\r\n"),
        Operation::Withdraw => ("withdraw", b""),
        Operation::Extend => ("extend", b""),
        Operation::Release => ("release", b""),
    };
    contains(frame, hash_of(script).expect("a script of ours").as_bytes()) && frame.ends_with(end)
}

fn takes(frame: &[u8]) -> bool {
    contains(frame, b"\r\nSET\r\n") && contains(frame, b"\r\ntg1 ")
}

fn contains(frame: &[u8], part: &[u8]) -> bool {
    frame.windows(part.len()).any(|bytes| bytes == part)
}

fn main() {
    conformance::main(vec![
        Redis::subject("redis", Config::redis(), false),
        Redis::subject("redis+quiet", Config::redis(), true),
        Redis::subject("redis+aof", Config::durable_redis(), false),
    ])
}
