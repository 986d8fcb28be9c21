//! PostgreSQL's advisory locks under the suite every backend must pass.

mod support;

use std::sync::Arc;

use support::wire::values;
use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_postgres::{AdvisoryBackend, PostgresConfig};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Deed, Postgres, Proxy};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One PostgreSQL for all cases: their names differ. Each lock has a connection.
struct Advisory;

impl Subject for Advisory {
    fn name(&self) -> &'static str {
        "postgres-advisory"
    }

    fn address(&self) -> String {
        let roomy = Config::postgres().argument("-c").argument("max_connections=500");
        engines::shared(&roomy).address().to_string()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let config = PostgresConfig::from_url(&format!("postgres://postgres@{address}/postgres"))?;
            Ok(Arc::new(AdvisoryBackend::connect(config, None, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let proxy = Proxy::start(address.parse().expect("an address"), Postgres);
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::Repeat })
    }
}

/// Whether a request is one of `operation`: a lock is taken by a prepared statement with its name and the connection's, and given
/// back by one with that alone. Everything else is not prepared.
fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let prepared = frame.first() == Some(&b'B') && frame.get(6) != Some(&0);
    let values = values(frame).map_or(0, |values| values.len());
    match operation {
        Operation::TryAcquire | Operation::Acquire => prepared && values == 2,
        Operation::Withdraw | Operation::Release => prepared && values == 1,
        Operation::Extend => frame.first() == Some(&b'Q'),
    }
}

fn main() {
    conformance::main(vec![Arc::new(Advisory)])
}
