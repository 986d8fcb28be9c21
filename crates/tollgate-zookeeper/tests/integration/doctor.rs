//! What an examination finds.

use std::time::Duration;

use crate::support::{backend_of, claim, config, configured, hosts, locks, said, secs, until, zoo_cfg};
use tollgate_core::{Attempt, Backend, Finding, Release, Severity};
use tollgate_testkit::engines::{self, Data};
use tollgate_zookeeper::ZooKeeperConfig;

fn found<'a>(findings: &'a [Finding], part: &str) -> &'a Finding {
    findings
        .iter()
        .find(|finding| finding.what.contains(part))
        .unwrap_or_else(|| panic!("nothing about {part:?} in {findings:#?}"))
}

#[tokio::test]
async fn an_examination_finds_what_is_wrong() {
    let engine = engines::private(&config(3)).unwrap();
    let examine = async |config| tollgate_zookeeper::examine(config).await.unwrap();
    let checkup = examine(configured(&engine, "", "/")).await;
    assert!(!checkup.has_problems(), "{checkup:#?}");
    assert_eq!(found(&checkup.findings, "3 of 3 servers serve").severity, Severity::Fine);
    assert_eq!(found(&checkup.findings, "tickTime is 200ms").severity, Severity::Fine);
    assert_eq!(found(&checkup.findings, "a ttl of 1.2s to 3600s").severity, Severity::Fine);
    assert_eq!(found(&checkup.findings, "every client that reaches").severity, Severity::Note);
    let mut slow = configured(&engine, "", "/");
    slow.tick = Duration::from_millis(100);
    let checkup = examine(slow).await;
    let tick = found(&checkup.findings, "tickTime is 200ms");
    assert!(tick.severity == Severity::Problem && tick.advice.as_ref().unwrap().contains("?tick=200ms"));
    let owner = backend_of(configured(&engine, "ann:secret@", "/owned")).await.unwrap();
    let Attempt::Granted(grant) = owner.try_acquire(&claim("a")).await.unwrap() else { panic!("it is free") };
    let checkup = examine(configured(&engine, "ann:secret@", "/owned")).await;
    assert_eq!(found(&checkup.findings, "/owned/locks is not open to all clients").severity, Severity::Fine);
    let checkup = examine(configured(&engine, "", "/owned")).await;
    assert!(checkup.has_problems(), "{checkup:#?}");
    owner.release(&grant).await.unwrap();
    engine.nodes()[0].kill();
    let checkup = examine(configured(&engine, "", "/")).await;
    assert_eq!(found(&checkup.findings, "does not answer").severity, Severity::Problem);
    assert!(found(&checkup.findings, "2 of 3 servers serve clients; 0 may fail").severity == Severity::Fine);
}

#[tokio::test]
async fn servers_that_know_nothing_of_each_other_are_found() {
    let (one, other) = (engines::private(&config(1)).unwrap(), engines::private(&config(1)).unwrap());
    let both = format!("zookeeper://{},{}", hosts(&one), hosts(&other));
    let mut config = ZooKeeperConfig::from_url(&both).unwrap();
    config.tick = crate::support::TICK;
    let checkup = tollgate_zookeeper::examine(config).await.unwrap();
    assert_eq!(found(&checkup.findings, "run standalone").severity, Severity::Problem);
}

#[tokio::test]
async fn servers_with_other_limits_are_found() {
    let engine = engines::private(&config(3)).unwrap();
    let node = &engine.nodes()[1];
    node.kill();
    let settings = zoo_cfg(&engine, node);
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace("maxSessionTimeout=3600000", "maxSessionTimeout=5000")).unwrap();
    node.restart(Data::Kept).unwrap();
    until("all answer", async || engine.answers()).await;
    let checkup = tollgate_zookeeper::examine(configured(&engine, "", "/")).await.unwrap();
    let limit = found(&checkup.findings, "maxSessionTimeout is 5s on one server and 3600s on another");
    assert_eq!(limit.severity, Severity::Problem);
}

#[tokio::test]
async fn an_ensemble_without_a_majority_is_described() {
    let engine = engines::private(&config(3)).unwrap();
    for node in &engine.nodes()[..2] {
        node.kill();
    }
    let last = engine.nodes()[2].address();
    until("the last one notices", async || said(last, "srvr").contains("not currently serving")).await;
    let checkup = tollgate_zookeeper::examine(configured(&engine, "", "/")).await.unwrap();
    for part in ["does not answer", "serves no clients: it has no leader", "grants a session"] {
        assert_eq!(found(&checkup.findings, part).severity, Severity::Problem);
    }
    engine.nodes()[2].kill();
    tollgate_zookeeper::examine(configured(&engine, "", "/")).await.expect_err("nobody is there");
}

#[tokio::test]
async fn local_sessions_are_found_and_hold_locks_all_the_same() {
    let config =
        config(3).argument("localSessionsEnabled=true").argument("localSessionsUpgradingEnabled=true");
    let engine = engines::private(&config).unwrap();
    let checkup = tollgate_zookeeper::examine(configured(&engine, "", "/")).await.unwrap();
    assert_eq!(found(&checkup.findings, "local sessions").severity, Severity::Note);
    let locks = locks(&hosts(&engine)).await.unwrap();
    let guard = locks.lock("a").ttl(secs(2)).acquire().await.unwrap();
    tokio::time::sleep(secs(5)).await;
    guard.check().expect("it is renewed");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
