//! Servers set up well and badly: what is wrong is found, and what is not is not.

use std::time::Duration;

use crate::support::{config, connection, locks};
use mysql_async::prelude::Queryable;
use tollgate_core::guarantees::Basis;
use tollgate_core::{Checkup, ErrorKind, Fault, Severity};
use tollgate_mysql::{Login, MySqlConfig, Style};
use tollgate_testkit::engines::{self, Config, Engine};

fn with(arguments: &[&str]) -> Engine {
    let config = arguments.iter().fold(Config::mariadb(), |config, argument| config.argument(*argument));
    engines::private(&config).unwrap()
}

async fn examine(config: MySqlConfig) -> tollgate_core::Result<Checkup> {
    tollgate_mysql::examine(config, Style::Lease).await
}

/// What was found, apart from what is fine.
fn said(checkup: &Checkup) -> Vec<(Severity, String)> {
    let findings = checkup.findings.iter().filter(|finding| finding.severity > Severity::Fine);
    findings.map(|finding| (finding.severity, finding.what.clone())).collect()
}

use Severity::{Note, Problem};

#[tokio::test]
async fn a_healthy_server_is_called_so_and_nothing_of_it_is_changed() {
    let engine = with(&[]);
    let checkup = examine(config(engine.address())).await.unwrap();
    assert_eq!(said(&checkup), []);
    assert!(checkup.subject.starts_with("MariaDB at 127.0.0.1:"), "{}", checkup.subject);
    let restarted = checkup.guarantees.under(Fault::EngineRestarted);
    assert_eq!((restarted.exclusion, restarted.tokens), (Basis::Kept, Basis::Kept));
    let tables: Vec<String> = connection(engine.address()).await.query("show tables").await.unwrap();
    assert_eq!(tables, [""; 0], "an examination creates nothing");
    locks(config(engine.address())).await;
    let checkup = examine(config(engine.address())).await.unwrap();
    assert!(checkup.findings.iter().any(|finding| finding.what.contains("dialect mariadb")), "{checkup:?}");
}

#[tokio::test]
async fn settings_that_lose_locks_are_found() {
    let engine = with(&["--log-bin=log", "--server-id=1", "--sync-binlog=0"]);
    let mut root = connection(engine.address()).await;
    let found = |severity, words: &str, checkup: &Checkup| {
        let said = said(checkup);
        assert!(said.iter().any(|(is, what)| *is == severity && what.contains(words)), "{words}: {said:?}");
    };
    found(Note, "sync_binlog = 0", &examine(config(engine.address())).await.unwrap());
    for (setting, words) in [
        ("innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit = 2"),
        ("binlog_format = 'STATEMENT'", "binlog_format = STATEMENT"),
        ("read_only = 1", "read_only = ON"),
    ] {
        root.query_drop(format!("set global {setting}")).await.unwrap();
        found(Problem, words, &examine(config(engine.address())).await.unwrap());
    }
    let checkup = examine(config(engine.address())).await.unwrap();
    assert_eq!(checkup.guarantees.under(Fault::EngineRestarted).exclusion, Basis::Broken);
}

#[tokio::test]
async fn a_user_who_lacks_rights_hears_which() {
    let engine = with(&[]);
    let mut root = connection(engine.address()).await;
    root.query_drop("create user ann@localhost identified by 'secret'").await.unwrap();
    root.query_drop("create database shop").await.unwrap();
    root.query_drop("grant select, insert on shop.* to ann@localhost").await.unwrap();
    let mut config = config(engine.address());
    config.database = "shop".to_owned();
    config.login = Login { user: "ann".to_owned(), password: Some("secret".to_owned()) };
    let said = said(&examine(config.clone()).await.unwrap());
    assert!(said[0].1.contains("UPDATE, DELETE, EXECUTE"), "{said:?}");
    assert!(said[1].1.contains("CREATE"), "{said:?}");
    config.login.password = Some("wrong".to_owned());
    assert_eq!(examine(config).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_clock_that_differs_is_seen() {
    let engine = engines::private(&Config::mariadb().own_clock()).unwrap();
    assert_eq!(said(&examine(config(engine.address())).await.unwrap()), []);
    engine.set_clock_ahead(Duration::from_secs(3600));
    let said = said(&examine(config(engine.address())).await.unwrap());
    assert!(said.len() == 1 && said[0].0 == Note && said[0].1.contains("3600"), "{said:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let engine = with(&[]);
    let config = config(engine.address());
    engine.stop();
    assert_eq!(examine(config).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn of_locks_that_hang_on_connections_it_says_what_those_survive() {
    let engine = with(&[]);
    let checkup = tollgate_mysql::examine(config(engine.address()), Style::Session).await.unwrap();
    assert_eq!(said(&checkup), []);
    assert!(checkup.subject.starts_with("GET_LOCK of MariaDB"), "{}", checkup.subject);
    let under = |fault| checkup.guarantees.under(fault);
    assert_eq!(under(Fault::HolderPaused).exclusion, Basis::Kept, "nothing expires");
    assert_eq!(under(Fault::ClockForward).exclusion, Basis::Kept, "and no clock is read");
    let restarted = under(Fault::EngineRestarted);
    assert_eq!((restarted.exclusion, restarted.tokens), (Basis::Broken, Basis::Kept));
}
