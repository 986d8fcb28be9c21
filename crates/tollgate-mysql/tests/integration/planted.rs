//! Procedures and views that others have made first, to have their code run by the next client.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::support::{apply, connection, locks};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tollgate_core::{BootClock, Error, ErrorKind, Gate, Keeper, Severity};
use tollgate_mysql::{MySqlConfig, MySqlFence, MySqlGate, SessionBackend, Style};
use tollgate_testkit::engines::{self, Config, Engine};

/// What only root can do, as a procedure's body.
const TELL: &str = "insert into vault.secrets values (current_user())";

/// A server with a database in which mallory may do anything, and another in which only root may.
fn with_mallory() -> Engine {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let setup = "create user mallory@localhost; grant all on test.* to mallory@localhost; \
                 create user app@localhost; \
                 grant select, insert, update, delete, execute on test.* to app@localhost; \
                 create database vault; create table vault.secrets (account varchar(200))";
    apply(engine.address(), "test", setup);
    engine
}

async fn as_user(address: SocketAddr, user: &str) -> Conn {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some(user))
        .db_name(Some("test"))
        .prefer_socket(false);
    Conn::new(options).await.unwrap()
}

fn config(address: SocketAddr, user: &str, owner: Option<&str>) -> MySqlConfig {
    let mut config = MySqlConfig::from_url(&format!("mariadb://{user}@{address}/test")).unwrap();
    config.owner = owner.map(ToOwned::to_owned);
    config
}

fn clock() -> Arc<BootClock> {
    Arc::new(BootClock::new(Keeper::global().unwrap()))
}

/// The refusals of root in each way to connect.
async fn refusals(address: SocketAddr) -> Vec<Error> {
    let config = || config(address, "root", None);
    let fence = MySqlFence::around("a").unwrap();
    vec![
        tollgate_mysql::connect(config(), clock()).await.err().unwrap(),
        SessionBackend::connect(config(), clock()).await.err().unwrap(),
        MySqlGate::connect(config()).await.err().unwrap(),
        fence.install(&mut connection(address).await).await.unwrap_err(),
    ]
}

/// Root is refused in every way with these words, and nothing was done with its rights.
async fn assert_refused(address: SocketAddr, words: &[&str]) {
    for error in refusals(address).await {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
    let checkup = tollgate_mysql::examine(config(address, "root", None), Style::Lease).await.unwrap();
    let found = checkup.findings.iter().find(|found| found.what.contains(words[0]));
    let found = found.unwrap_or_else(|| panic!("the doctor says nothing: {checkup:#?}"));
    assert_eq!(found.severity, Severity::Problem);
    let told: Vec<String> =
        connection(address).await.query("select account from vault.secrets").await.unwrap();
    assert_eq!(told, [""; 0], "with whose rights it was told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planted_view_is_not_read_by_root() {
    let engine = with_mallory();
    let address = engine.address();
    let mut mallory = as_user(address, "mallory").await;
    let planted = [
        format!("create function tell() returns integer sql security invoker begin {TELL}; return 3; end"),
        "create sql security invoker view tollgate_version as select tell() as version, 'mariadb' as dialect"
            .to_owned(),
        "create sql security invoker view tollgate_fences as select 'a' as resource, tell() as token"
            .to_owned(),
    ];
    for statement in planted {
        mallory.query_drop(statement).await.unwrap();
    }
    assert_refused(address, &["a view", "drop it"]).await;
    let mut root = connection(address).await;
    root.query_drop("select * from test.tollgate_version").await.unwrap();
    let told: Vec<String> = root.query("select account from vault.secrets").await.unwrap();
    assert_eq!(told, ["root@localhost"], "this is what reading it does");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_procedures_are_not_called_by_root() {
    let engine = with_mallory();
    let address = engine.address();
    // All of it as it should be, and then one of them as it should not.
    locks(config(address, "mallory", None)).await;
    assert_refused(address, &["belongs to mallory@localhost", "?owner=mallory%40localhost"]).await;
    let mut mallory = as_user(address, "mallory").await;
    for name in ["tollgate_acquire", "tollgate_wake", "tollgate_check"] {
        mallory.query_drop(format!("drop procedure {name}")).await.unwrap();
        let planted = format!("create procedure {name}() sql security invoker begin {TELL}; end");
        mallory.query_drop(planted).await.unwrap();
    }
    assert_refused(address, &["belongs to mallory@localhost"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_the_url_names_is_trusted() {
    let engine = with_mallory();
    let address = engine.address();
    locks(config(address, "mallory", None)).await;
    let trusting = || config(address, "root", Some("mallory@localhost"));
    locks(trusting()).await.lock("a").acquire().await.unwrap().release().await.unwrap();
    SessionBackend::connect(trusting(), clock()).await.unwrap();
    let gate = MySqlGate::connect(trusting()).await.unwrap();
    assert_eq!(gate.highest("a").await.unwrap(), None);
    let fence = MySqlFence::around("a").unwrap().owned_by("mallory@localhost");
    fence.install(&mut connection(address).await).await.unwrap();
    let checkup = tollgate_mysql::examine(trusting(), Style::Lease).await.unwrap();
    assert!(!checkup.findings.iter().any(|found| found.what.contains("mallory")), "{checkup:#?}");
    let other = config(address, "root", Some("other@localhost"));
    let error = tollgate_mysql::connect(other, clock()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// Root makes what `tollgate sql-schema` prints, and an application uses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_uses_what_root_has_made_and_nothing_that_another_has_added() {
    let engine = with_mallory();
    let address = engine.address();
    apply(address, "test", &tollgate_mysql::ddl(&config(address, "root", None)).unwrap());
    let app = || config(address, "app", None);
    locks(app()).await.lock("a").acquire().await.unwrap().release().await.unwrap();
    locks(config(address, "root", None)).await;
    let mut mallory = as_user(address, "mallory").await;
    mallory.query_drop("drop procedure tollgate_acquire").await.unwrap();
    let planted = "create procedure tollgate_acquire() sql security invoker begin end";
    mallory.query_drop(planted).await.unwrap();
    let error = tollgate_mysql::connect(app(), clock()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("others belong to another account"), "{error}");
    assert_refused(address, &["belongs to mallory@localhost"]).await;
}
