//! MariaDB under the suite every backend must pass: as it is, and with the statements that MySQL understands.

mod support;

use std::sync::Arc;

use support::wire::asks_for;
use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_mysql::{Dialect, MySqlConfig};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Deed, MySql, Proxy};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One MariaDB for all cases: their names differ, and the tables of each dialect.
struct Database {
    name: &'static str,
    dialect: Dialect,
}

impl Subject for Database {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        engines::shared(&Config::mariadb().argument("--max-connections=1000")).address().to_string()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let mut config = MySqlConfig::from_url(&format!("mariadb://root@{address}/test"))?;
            config.connections = 2;
            config.dialect = Some(self.dialect);
            if self.dialect == Dialect::MySql {
                config.table_prefix = "counted_".to_owned();
            }
            Ok(Arc::new(tollgate_mysql::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let proxy = Proxy::start(address.parse().expect("an address"), MySql);
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::Repeat })
    }
}

fn main() {
    let subject = |name, dialect| -> Arc<dyn Subject> { Arc::new(Database { name, dialect }) };
    conformance::main(vec![subject("mysql", Dialect::MariaDb), subject("mysql+counted", Dialect::MySql)])
}
