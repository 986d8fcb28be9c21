//! What is said of an etcd that is not well, and what of that works when it is pasted into a shell.

use std::process::Command;

use crate::support::{backend, ctl, etcdctl, locks, secs, url};
use tollgate::{Checkup, Finding, Severity};
use tollgate_testkit::engines::{self, Config, Data, Engine};

async fn examined(url: &str) -> Checkup {
    let examination = tokio::time::timeout(secs(30), tollgate::doctor(url));
    examination.await.expect("it does not hang").expect("somebody answers")
}

#[track_caller]
fn finding<'a>(checkup: &'a Checkup, severity: Severity, words: &str) -> &'a Finding {
    let found =
        checkup.findings.iter().find(|found| found.severity == severity && found.what.contains(words));
    found.unwrap_or_else(|| panic!("{words:?} is not among {:#?}", checkup.findings))
}

/// What a person sees who pastes `command` into a shell on a machine where `etcdctl` finds this etcd.
fn pasted(engine: &Engine, command: &str) -> String {
    let output = Command::new("bash")
        .args(["-c", command])
        .envs([("ETCDCTL_API", "3"), ("ETCDCTL_ENDPOINTS", &engine.address().to_string())])
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The command of the documentation that begins with `start`.
fn documented(start: &str) -> String {
    let page = include_str!("../../../../docs/backends/etcd.md");
    let line = page.lines().find_map(|line| line.strip_prefix("$ ").filter(|line| line.starts_with(start)));
    line.unwrap_or_else(|| panic!("no line of the page begins with {start}")).to_owned()
}

/// Has the engine start again with what it had when `snapshot` was saved.
fn restore(engine: &Engine, snapshot: &str) {
    let members = ctl(engine.address(), &["member", "list"]);
    let peer = members.split(", ").nth(3).unwrap().to_owned();
    engine.kill();
    let data = engine.folder().join("node-1/data");
    std::fs::remove_dir_all(&data).unwrap();
    let data = data.display().to_string();
    let cluster = format!("n1={peer}");
    let words = ["--name", "n1", "--initial-cluster", &cluster, "--initial-advertise-peer-urls", &peer];
    ctl(engine.address(), &[&["snapshot", "restore", snapshot, "--data-dir", &data][..], &words].concat());
    engine.restart(Data::Kept).unwrap();
}

#[tokio::test]
async fn a_backup_that_was_restored_is_not_forgotten_and_tokens_can_be_raised_from_a_shell() {
    let engine = engines::private(&Config::etcd()).unwrap();
    for n in 0..100 {
        ctl(engine.address(), &["put", "x", &n.to_string()]);
    }
    let snapshot = engine.folder().join("snapshot").display().to_string();
    ctl(engine.address(), &["snapshot", "save", &snapshot]);
    let before = locks(&url(&engine)).await.unwrap();
    for _ in 0..10 {
        before.lock("nightly-report").ttl(secs(60)).acquire().await.unwrap().release().await.unwrap();
    }
    let stale = before.lock("nightly-report").ttl(secs(60)).acquire().await.unwrap().token();
    let checkup = examined(&url(&engine)).await;
    assert!(!checkup.findings.iter().any(|found| found.what.contains("backup")), "{checkup:?}");
    restore(&engine, &snapshot);

    let checkup = examined(&url(&engine)).await;
    finding(&checkup, Severity::Note, "restored from a backup");
    let after = locks(&url(&engine)).await.unwrap();
    // The log has caught up, and what the client left still tells.
    for _ in 0..150 {
        ctl(engine.address(), &["lease", "grant", "60"]);
    }
    let status = ctl(engine.address(), &["endpoint", "status"]);
    let revision = ctl(engine.address(), &["get", "x", "-w", "fields"]);
    let revision = revision.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    let index = status.split(", ").nth(7).unwrap();
    assert!(index.parse::<u64>().unwrap() > revision.parse().unwrap(), "{index} and {revision}");
    let checkup = examined(&url(&engine)).await;
    let note = finding(&checkup, Severity::Note, "restored from a backup");

    let again = after.lock("nightly-report").ttl(secs(60)).acquire().await.unwrap();
    assert!(again.token() <= stale, "that is what is wrong with a backup");
    again.release().await.unwrap();
    pasted(&engine, &documented("etcdctl put $'/locks/\\x01floor/"));
    let raised = after.lock("nightly-report").ttl(secs(60)).acquire().await.unwrap();
    assert!(raised.token().get() > 1_000_000_000 && raised.token() > stale, "{}", raised.token());
    raised.release().await.unwrap();

    let advice = note.advice.as_deref().unwrap();
    pasted(&engine, &advice[advice.rfind("etcdctl put").unwrap()..]);
    let _connects = backend(&url(&engine)).await.unwrap();
    finding(&examined(&url(&engine)).await, Severity::Fine, "acknowledged it");
    // Another backup is another reason.
    ctl(engine.address(), &["snapshot", "save", &snapshot]);
    restore(&engine, &snapshot);
    finding(&examined(&url(&engine)).await, Severity::Note, "restored from a backup");
}

#[tokio::test]
async fn a_majority_that_is_lost_is_told_by_who_is_left() {
    let engine = engines::private(&Config::etcd().nodes(3)).unwrap();
    for node in &engine.nodes()[..2] {
        node.kill();
    }
    for url in [url(&engine), format!("etcd://{}/", engine.nodes()[2].address())] {
        let checkup = loop {
            let checkup = examined(&url).await;
            // It takes a moment until the last one knows.
            if checkup.findings.iter().any(|found| found.what.contains("has no leader")) {
                break checkup;
            }
        };
        finding(&checkup, Severity::Problem, "n1 does not answer");
        finding(&checkup, Severity::Problem, "1 of 3 members answer, and 2 are needed for a majority");
        let write = finding(&checkup, Severity::Problem, "cannot be written");
        assert!(write.advice.as_deref().unwrap().contains("start the members"), "{write:?}");
        assert!(!format!("{checkup:?}").contains("grant-permission"), "{checkup:?}");
    }
}

#[tokio::test]
async fn a_database_that_is_full_is_told_with_its_size() {
    let engine = engines::private(&Config::etcd().argument("--quota-backend-bytes=2000000")).unwrap();
    let much = "x".repeat(100_000);
    let fill = || etcdctl(engine.address()).args(["put", "much", &much]).output().unwrap().status.success();
    assert!((0..200).any(|_| !fill()), "it is never full");
    let checkup = examined(&url(&engine)).await;
    finding(&checkup, Severity::Problem, " MiB, of which ");
    assert!(!checkup.findings.iter().any(|found| found.what.contains('%')), "{checkup:?}");
}

#[tokio::test]
async fn who_may_not_is_told_what_to_do_about_it() {
    let engine = engines::private(&Config::etcd()).unwrap();
    let address = engine.address();
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "ann:hush"],
        &["auth", "enable"],
    ] {
        ctl(address, words);
    }
    let advice = async |login: &str| {
        let checkup = examined(&format!("etcd://{login}{address}/?prefix=/mine/")).await;
        finding(&checkup, Severity::Problem, "cannot be written").advice.clone().unwrap()
    };
    assert_eq!(
        advice("ann:hush@").await,
        "etcdctl role grant-permission ROLE readwrite --prefix=true /mine/"
    );
    let nobody = advice("").await;
    assert!(nobody.contains("etcd://USER:PASSWORD@HOST"), "{nobody}");
    // Who is not let in at all is told that.
    let wrong = tollgate::doctor(&format!("etcd://bob:hush@{address}/")).await.unwrap_err();
    assert_eq!(wrong.kind(), tollgate::ErrorKind::Denied, "{wrong}");
    assert!(wrong.to_string().contains("user or password"), "{wrong}");
    let root = examined(&format!("etcd://root:secret@{address}/")).await;
    finding(&root, Severity::Fine, "can be read and written");
}
