//! PostgreSQL under the suite every backend must pass: as it is, with every wake-up discarded, and behind PgBouncer.

mod support;

use std::sync::{Arc, Mutex, OnceLock};

use support::wire::asks_for;
use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_postgres::PostgresConfig;
use tollgate_testkit::engines::{self, Config, Engine};
use tollgate_testkit::proxy::{Deed, Discard, Postgres, Proxy};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One PostgreSQL for all cases: their names differ.
struct Database {
    name: &'static str,
    /// Whether notifications never arrive, and the proxies that see to it.
    quiet: Option<Mutex<Vec<Proxy>>>,
    /// What is in between.
    pooler: Option<OnceLock<Engine>>,
}

impl Database {
    fn address_of_engine(&self) -> std::net::SocketAddr {
        let engine = engines::shared(&Config::postgres()).address();
        match &self.pooler {
            None => engine,
            Some(pooler) => {
                let start = || {
                    engines::private(&Config::pgbouncer(engine.port()))
                        .unwrap_or_else(|trouble| panic!("{trouble}"))
                };
                pooler.get_or_init(start).address()
            }
        }
    }
}

impl Subject for Database {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        let engine = self.address_of_engine();
        match &self.quiet {
            None => engine.to_string(),
            Some(proxies) => {
                let mut proxies = proxies.lock().expect("no case panics here");
                if proxies.is_empty() {
                    let proxy = Proxy::start(engine, Postgres);
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
            let mut config = PostgresConfig::from_url(&format!("postgres://postgres@{address}/postgres"))?;
            config.connections = 2;
            Ok(Arc::new(tollgate_postgres::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let proxy = Proxy::start(address.parse().expect("an address"), Postgres);
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::Repeat })
    }
}

fn main() {
    let subject = |name, quiet: bool, pooled: bool| -> Arc<dyn Subject> {
        Arc::new(Database { name, quiet: quiet.then(Mutex::default), pooler: pooled.then(OnceLock::new) })
    };
    conformance::main(vec![
        subject("postgres", false, false),
        subject("postgres+quiet", true, false),
        subject("postgres+pgbouncer", false, true),
    ])
}
