//! `GET_LOCK` under the suite every backend must pass: with tokens of a sequence, and with tokens that rows count.

mod support;

use std::sync::Arc;

use support::wire::{Value, values};
use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_mysql::{Dialect, MySqlConfig, SessionBackend};
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Deed, MySql, Proxy};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One MariaDB for all cases: their names differ. Each lock has a connection.
struct Session {
    name: &'static str,
    dialect: Dialect,
}

impl Subject for Session {
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
            config.dialect = Some(self.dialect);
            if self.dialect == Dialect::MySql {
                config.table_prefix = "counted_".to_owned();
            }
            Ok(Arc::new(SessionBackend::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let proxy = Proxy::start(address.parse().expect("an address"), MySql);
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::Repeat })
    }

    fn exempt(&self, case: &str) -> Option<&'static str> {
        (case == "an_acquire_that_arrives_after_it_was_given_up_leaves_nothing_behind")
            .then_some("its connection is ended at the server, so that it never arrives")
    }
}

/// Whether a request is one of `operation`: a lock is taken by a turn's number, its name and some seconds, and given back by
/// that number alone.
fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let text = |words: &[u8]| frame.get(4) == Some(&3) && frame[5..].starts_with(words);
    match (operation, values(frame).as_deref()) {
        (
            Operation::TryAcquire | Operation::Acquire,
            Some([Value::Number(_), Value::Number(_), Value::Text(_), Value::Number(_)]),
        ) => true,
        (Operation::Release, Some([Value::Number(_)])) => true,
        (Operation::Withdraw, Some([Value::Number(_)])) => true,
        (Operation::Withdraw, None) => text(b"kill "),
        (Operation::Extend, None) => text(b"select is_used_lock"),
        _ => false,
    }
}

fn main() {
    let subject = |name, dialect| -> Arc<dyn Subject> { Arc::new(Session { name, dialect }) };
    conformance::main(vec![
        subject("mysql-session", Dialect::MariaDb),
        subject("mysql-session+counted", Dialect::MySql),
    ])
}
