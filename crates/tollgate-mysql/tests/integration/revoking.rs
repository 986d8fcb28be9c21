//! A renewal that meets the operator who breaks its lock.

use std::time::Duration;

use crate::support::{config, connection, locks};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value};
use tollgate_testkit::engines::{self, Config};

/// The text of one of the statements that clients send.
fn statement(name: &str) -> String {
    let all = include_str!("../../src/statements.sql");
    let (_, rest) = all.split_once(&format!("-- :{name}\n")).expect("there is one");
    rest.split("\n-- :").next().unwrap().to_owned()
}

/// Ten ways in which they meet: the renewal waits for a row that the operator has locked, and finds the mark when it has it.
async fn a_waiting_renewal_finds_the_mark(root: &mut Conn, table: &str, statement: &str, owner: &str) {
    let address = root.opts().ip_or_hostname().to_owned();
    let address = std::net::SocketAddr::new(address.parse().unwrap(), root.opts().tcp_port());
    for _ in 0..10 {
        let mut renewing = connection(address).await;
        renewing.query_drop("set session transaction isolation level read committed").await.unwrap();
        root.query_drop("begin").await.unwrap();
        root.query_drop(format!("select * from {table} where name = 'a' for update")).await.unwrap();
        let values: Vec<Value> =
            vec![9000.into(), 9000.into(), "{}".into(), "{}".into(), "a".into(), owner.into(), owner.into()];
        let text = statement.to_owned();
        let renewal = tokio::spawn(async move {
            renewing.exec_drop(text, values).await.unwrap();
            renewing.affected_rows()
        });
        let waiting = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";
        while root.query_first::<i64, _>(waiting).await.unwrap() != Some(1) {
            // The server collects that only now and then.
            tokio::time::sleep(Duration::from_millis(110)).await;
        }
        root.exec_drop("insert into tollgate_revocations values (?, 1 << 60)", (owner,)).await.unwrap();
        root.query_drop("commit").await.unwrap();
        assert_eq!(renewal.await.unwrap(), 0, "`{statement}` passed the mark");
        root.query_drop("delete from tollgate_revocations").await.unwrap();
    }
}

#[tokio::test]
async fn a_renewal_that_waited_for_the_operator_finds_the_mark() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let locks = locks(config(engine.address())).await;
    let mut root = connection(engine.address()).await;
    let no_end = Duration::from_secs(3600);
    for (table, name) in [("tollgate_locks", "renew"), ("tollgate_claims", "renew_claim")] {
        let request = locks.lock("a").ttl(no_end);
        let request = if name == "renew" { request } else { request.shared() };
        let guard = request.acquire().await.unwrap();
        let owner = format!("select cast(owner as char) from {table} where name = 'a'");
        let owner: String = root.query_first(owner).await.unwrap().unwrap();
        a_waiting_renewal_finds_the_mark(&mut root, table, &statement(name), &owner).await;
        guard.release().await.unwrap();
    }
}
