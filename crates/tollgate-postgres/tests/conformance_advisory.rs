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

/// Whether a request is one of `operation`: a lock is taken by its name and a turn's number, and given back by that number
/// alone.
fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let Some(values) = values(frame) else { return operation == Operation::Extend && frame[0] == b'Q' };
    let is_turn = |value: &Option<&[u8]>| value.is_some_and(|value| value.len() == 8);
    match operation {
        Operation::TryAcquire | Operation::Acquire => values.len() == 2 && is_turn(&values[1]),
        Operation::Withdraw | Operation::Release => values.len() == 1 && is_turn(&values[0]),
        Operation::Extend => false,
    }
}

fn main() {
    conformance::main(vec![Arc::new(Advisory)])
}
