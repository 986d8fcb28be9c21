//! A statement that fails leaves no transaction open on a connection that is used again: what is said to be done is done.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{config, connection};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tollgate_core::{Backend, BootClock, Keeper, Locks};
use tollgate_mysql::{Dialect, MySqlConfig};
use tollgate_sql::Database;
use tollgate_testkit::engines::{self, Config};

const DIALECTS: [Dialect; 2] = [Dialect::MariaDb, Dialect::MySql];

/// A client with one connection, and tables of its own.
fn alone(prefix: &str, dialect: Dialect) -> MySqlConfig {
    let mut config = config(engines::shared(&Config::mariadb()).address());
    (config.dialect, config.connections) = (Some(dialect), 1);
    config.table_prefix = format!("{prefix}_{dialect:?}_");
    config
}

async fn other() -> Conn {
    connection(engines::shared(&Config::mariadb()).address()).await
}

#[tokio::test]
async fn a_sweep_that_finds_a_row_sat_on_leaves_no_transaction_open() {
    for dialect in DIALECTS {
        let config = alone("sat", dialect);
        let prefix = config.table_prefix.clone();
        let locks = crate::support::locks(config).await;
        let reader = locks.lock("k").shared().ttl(Duration::from_secs(1)).no_renew().acquire().await.unwrap();
        let (mut sitter, mut sweeper) = (other().await, other().await);
        // As if it had died two minutes ago.
        sitter.query_drop(format!("update {prefix}claims set expires = expires - 120000000")).await.unwrap();
        let mut tx = sitter.start_transaction(TxOpts::default()).await.unwrap();
        tx.query_drop(format!("select 1 from {prefix}locks where name = 'k' for update")).await.unwrap();
        sweeper.query_drop("set session innodb_lock_wait_timeout = 1").await.unwrap();
        for procedure in ["sweep()", "bury_crowds()", "lock_row('k')"] {
            sweeper
                .query_drop(format!("call {prefix}{procedure}"))
                .await
                .expect_err("somebody sits on the row");
            let open: Option<i64> = sweeper.query_first("select @@in_transaction").await.unwrap();
            assert_eq!(open, Some(0), "{procedure} in {dialect:?}");
        }
        tx.rollback().await.unwrap();
        drop(reader);
    }
}

#[tokio::test]
async fn what_is_answered_after_a_transaction_was_left_open_is_seen_by_others() {
    // One fails in its transaction, the other forgets it.
    for ends in ["signal sqlstate '45000'", "do 1"] {
        for dialect in DIALECTS {
            let config = alone("open", dialect);
            let prefix = config.table_prefix.clone();
            let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
            let backend = Arc::new(tollgate_mysql::connect(config, clock).await.unwrap());
            let mut other = other().await;
            let careless =
                format!("create or replace procedure {prefix}sweep() begin start transaction; {ends}; end");
            other.query_drop(careless).await.unwrap();
            let locks = Locks::new(backend.clone() as Arc<dyn Backend>).unwrap();
            // From now on it is taken by a plain statement.
            locks.lock("k").acquire().await.unwrap().release().await.unwrap();
            backend.database().sweep().await.expect_err("it was not done");
            let guard = locks.lock("k").acquire().await.unwrap();
            let seen = format!("select count(*) from {prefix}locks where owner is not null");
            assert_eq!(
                other.query_first::<i64, _>(seen).await.unwrap(),
                Some(1),
                "after {ends:?} in {dialect:?}"
            );
            guard.release().await.unwrap();
        }
    }
}
