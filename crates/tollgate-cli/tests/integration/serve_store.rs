//! `tollgate serve --store URL`: several servers over one engine, and `--read-only`.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate_testkit::engines::{self, Config, Engine};

use crate::support::server::{Http, Server};
use crate::support::{Sandbox, eventually, text};

const OWNER: &str = "0123456789abcdef0123456789abcdef";

fn start(sandbox: &Sandbox, url: &str, arguments: &[&str]) -> Server {
    Server::run(sandbox.tollgate(&["serve", "--json", "--listen", "127.0.0.1:0", "--store", url]), arguments)
}

/// What every engine behind a server does.
fn serves_locks(url: &str) {
    let sandbox = Sandbox::new();
    let (one, other) = (start(&sandbox, url, &[]), start(&sandbox, url, &[]));
    let (mut first, mut second) = (one.client(), other.client());
    let take =
        json!({"name": "a/1", "owner": OWNER, "host": "web-1", "meta": {"job": "x"}, "ttl_ms": 30_000});
    let grant = first.post("/v1/acquire", &take).unwrap();
    assert_eq!(grant.status, 200, "{grant:?}");
    let grant = grant.body;
    assert!(grant["owner"].as_str().unwrap().starts_with(OWNER), "{grant}");
    let valid = grant["valid_ms"].as_u64().unwrap();
    assert!((20_000..30_000).contains(&valid), "{grant}");

    // The client moves to the other server with its grant.
    let extended = second.post("/v1/extend", &grant).unwrap();
    assert_eq!((extended.status, &extended.body["token"]), (200, &grant["token"]), "{extended:?}");
    let kept = second.post("/v1/keep", &json!({"items": [grant]})).unwrap();
    assert_eq!(kept.body["items"][0]["state"], "held", "{kept:?}");
    let busy = second.post("/v1/acquire", &json!({"name": "a/1"})).unwrap();
    assert_eq!((busy.status, &busy.body["holders"][0]["host"]), (409, &json!("web-1")), "{busy:?}");
    assert_eq!(busy.body["holders"][0]["token"], grant["token"]);
    let listed = second.get("/v1/locks?prefix=a/").unwrap().body;
    assert_eq!((listed["locks"].as_array().unwrap().len(), &listed["next"]), (1, &Value::Null), "{listed}");
    assert!(!listed.to_string().contains(OWNER), "owners are secrets");

    // A claim waits at one server, and the holder releases at the other.
    let address = other.address;
    let waiting = std::thread::spawn(move || {
        let body = json!({"name": "a/1", "wait_ms": 30_000, "ttl_ms": 30_000});
        Http::new(address).post("/v1/acquire", &body).unwrap()
    });
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(first.post("/v1/release", &grant).unwrap().status, 200);
    let next = waiting.join().unwrap();
    assert_eq!(next.status, 200, "{next:?}");
    assert!(next.body["token"].as_u64() > grant["token"].as_u64());
    assert_eq!(first.post("/v1/extend", &grant).unwrap().status, 410);
    assert_eq!(second.post("/v1/release", &next.body).unwrap().status, 200);
    let lock = second.get("/v1/lock?name=a%2F1").unwrap();
    assert_eq!(lock.body["holders"], json!([]), "{lock:?}");

    // A round ends, and the claim keeps its place at this server.
    let held = first.post("/v1/acquire", &json!({"name": "b", "ttl_ms": 30_000})).unwrap().body;
    let wanted = json!({"name": "b", "owner": OWNER.replace('0', "9"), "wait_ms": 60_000, "round_ms": 100, "ttl_ms": 30_000});
    let round = second.post("/v1/acquire", &wanted).unwrap();
    assert_eq!(round.body["type"], "urn:tollgate:problem:waiting", "{round:?}");
    first.post("/v1/release", &held).unwrap();
    let granted = eventually("the repeated call is granted", || {
        let answer = second.post("/v1/acquire", &wanted).unwrap();
        (answer.status == 200).then_some(answer.body)
    });
    let broken = json!({"name": "b", "token": granted["token"], "force": true});
    assert_eq!(first.post("/v1/break", &broken).unwrap().body, json!({"revoked": true}));
    assert_eq!(second.post("/v1/extend", &granted).unwrap().status, 410);

    // A keep hears of a break, and fetches a claim that was granted.
    let held = first.post("/v1/acquire", &json!({"name": "k", "ttl_ms": 30_000})).unwrap().body;
    let owner = OWNER.replace('0', "8");
    let wanted = json!({"name": "k", "owner": owner, "wait_ms": 60_000, "round_ms": 1, "ttl_ms": 30_000});
    assert_eq!(second.post("/v1/acquire", &wanted).unwrap().status, 409);
    first.post("/v1/release", &held).unwrap();
    let items = json!({"items": [{"name": "k", "owner": owner}], "wait_ms": 20_000});
    let kept = eventually("the claim is granted", || {
        let kept = second.post("/v1/keep", &items).unwrap().body;
        (kept["items"][0]["state"] == "held").then(|| kept["items"][0].clone())
    });
    let item = json!({"name": "k", "owner": kept["owner"]});
    assert_eq!(second.post("/v1/extend", &item).unwrap().status, 200, "{kept}");
    let address = other.address;
    let items = json!({"items": [item], "wait_ms": 20_000});
    let keeping = std::thread::spawn(move || Http::new(address).post("/v1/keep", &items).unwrap().body);
    std::thread::sleep(Duration::from_millis(200));
    first.post("/v1/break", &json!({"name": "k", "token": kept["token"], "force": true})).unwrap();
    let broken = keeping.join().unwrap();
    assert_eq!(broken["items"][0]["state"], "lost", "{broken}");

    // The owner of a shared grant is no owner of an exclusive one.
    let shared = json!({"name": "m", "owner": OWNER.replace('0', "7"), "mode": "shared", "ttl_ms": 30_000});
    if !url.starts_with("redlock") {
        let taken = first.post("/v1/acquire", &shared).unwrap();
        assert_eq!(taken.status, 200, "{taken:?}");
        let mut exclusive = shared;
        exclusive["mode"] = json!("exclusive");
        let refused = second.post("/v1/acquire", &exclusive).unwrap();
        assert!([409, 410, 422].contains(&refused.status), "{refused:?}");
    }

    // A set, all or nothing.
    let set = json!({"names": ["s/2", "s/1"], "ttl_ms": 30_000});
    let taken = first.post("/v1/acquire-all", &set).unwrap();
    assert_eq!(taken.status, 200, "{taken:?}");
    assert_eq!(second.post("/v1/acquire-all", &json!({"names": ["s/0", "s/1"]})).unwrap().status, 409);
    let free = second.get("/v1/lock?name=s%2F0").unwrap();
    assert_eq!(free.body["holders"], json!([]), "nothing of a set that failed is held");
    for grant in taken.body["grants"].as_array().unwrap() {
        assert_eq!(first.post("/v1/release", grant).unwrap().status, 200);
    }

    let info = first.get("/v1/info").unwrap().body;
    assert_eq!((&info["durability"], &info["read_only"]), (&json!("engine"), &json!(false)), "{info}");
    for (body, member) in [
        (json!({"name": "c", "on_deadlock": "detect", "party": OWNER}), Value::Null),
        (json!({"name": "c", "ttl_ms": 1, "lock_delay_ms": 5}), Value::Null),
    ] {
        let refused = first.post("/v1/acquire", &body).unwrap();
        assert_eq!((refused.status, &refused.body["member"]), (422, &member), "{refused:?}");
    }
    let incomplete = first.post("/v1/extend", &json!({"name": "c", "owner": OWNER})).unwrap();
    assert_eq!((incomplete.status, &incomplete.body["member"]), (422, &json!("owner")));
}

fn url_of(engine: &Engine, scheme: &str, path: &str) -> String {
    format!("{scheme}://{}{path}", engine.address())
}

#[test]
fn over_redis() {
    let engine = engines::private(&Config::redis()).unwrap();
    serves_locks(&url_of(&engine, "redis", "/"));
}

#[test]
fn over_etcd() {
    let engine = engines::private(&Config::etcd()).unwrap();
    serves_locks(&url_of(&engine, "etcd", "/"));
}

#[test]
fn over_redlock() {
    let nodes: Vec<Engine> = (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let url = format!("redlock://{}/", addresses.join(","));
    let sandbox = Sandbox::new();
    assert!(sandbox.output(&["redlock-init", &url]).status.success());
    serves_locks(&url);
}

#[test]
fn over_postgres() {
    let engine = engines::private(&Config::postgres()).unwrap();
    serves_locks(&format!("postgres://postgres@{}/postgres", engine.address()));
}

#[test]
fn over_mariadb() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    serves_locks(&format!("mysql://root@{}/test", engine.address()));
}

#[test]
fn a_client_that_does_not_come_back_leaves_nothing() {
    let engine = engines::private(&Config::redis()).unwrap();
    let sandbox = Sandbox::new();
    let server = start(&sandbox, &url_of(&engine, "redis", "/"), &[]);
    let mut client = server.client();
    let held = client.post("/v1/acquire", &json!({"name": "a"})).unwrap().body;
    for (owner, ttl) in [("", 30_000), (OWNER, 500)] {
        let mut wanted = json!({"name": "a", "wait_ms": 50_000, "ttl_ms": ttl});
        if !owner.is_empty() {
            wanted["owner"] = json!(owner);
        }
        let body = wanted.to_string();
        let mut gone = server.client();
        gone.send(&format!(
            "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .unwrap();
        let mut waiters = || client.get("/v1/lock?name=a").unwrap().body["waiters"].as_array().unwrap().len();
        eventually("the claim waits", || (waiters() == 1).then_some(()));
        drop(gone);
        eventually("the claim is withdrawn", || (waiters() == 0).then_some(()));
    }
    client.post("/v1/release", &held).unwrap();
    let late = client.post("/v1/acquire", &json!({"name": "a", "owner": OWNER})).unwrap();
    assert_eq!(late.status, 410, "an owner that was withdrawn is refused: {late:?}");
    assert_eq!(client.post("/v1/acquire", &json!({"name": "a"})).unwrap().status, 200);
}

#[test]
fn an_engine_that_is_away_is_told_and_nothing_is_granted() {
    let engine = engines::private(&Config::redis()).unwrap();
    let sandbox = Sandbox::new();
    let server = start(&sandbox, &url_of(&engine, "redis", "/?timeout=500ms"), &[]);
    let mut client = server.client();
    let grant = client.post("/v1/acquire", &json!({"name": "a"})).unwrap().body;
    engine.pause();
    for (path, body) in [("/v1/acquire", json!({"name": "b"})), ("/v1/extend", grant.clone())] {
        let began = Instant::now();
        let away = client.post(path, &body).unwrap();
        assert!(matches!(away.status, 503 | 504), "{path}: {away:?}");
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(client.get("/healthz").unwrap().status, 200);
    engine.resume();
    eventually("it goes on", || (client.post("/v1/extend", &grant).unwrap().status == 200).then_some(()));
}

#[test]
fn a_stop_answers_the_calls_that_wait() {
    let engine = engines::private(&Config::redis()).unwrap();
    let sandbox = Sandbox::new();
    let mut server = start(&sandbox, &url_of(&engine, "redis", "/"), &[]);
    server.client().post("/v1/acquire", &json!({"name": "a"})).unwrap();
    let address = server.address;
    let waiting = std::thread::spawn(move || {
        Http::new(address).post("/v1/acquire", &json!({"name": "a", "wait_ms": 50_000})).unwrap()
    });
    eventually("the claim waits", || {
        let lock = server.client().get("/v1/lock?name=a").unwrap().body;
        (lock["waiters"].as_array()?.len() == 1).then_some(())
    });
    server.running.signal(Signal::TERM);
    let refused = waiting.join().unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    assert_eq!(server.running.code(), 0);
}

#[test]
fn engines_whose_locks_die_with_the_server_are_refused_and_can_be_shown() {
    let sandbox = Sandbox::new();
    let url = sandbox.url();
    let refused = sandbox.output(&["serve", "--listen", "127.0.0.1:0", "--store", &url]);
    assert_eq!(refused.status.code(), Some(78), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("--read-only"), "{}", text(&refused.stderr));
    let refused = sandbox.output(&["serve", "--listen", "127.0.0.1:0", "--read-only"]);
    assert_eq!(refused.status.code(), Some(78), "{}", text(&refused.stderr));

    let server = start(&sandbox, &url, &["--read-only"]);
    let mut client = server.client();
    let mut running = sandbox.start(&["run", "shown", "--", "sleep", "60"]);
    let lock = eventually("the lock is shown", || {
        let page = client.get("/v1/locks").unwrap().body;
        page["locks"].as_array()?.first().cloned()
    });
    assert_eq!(lock["name"], "shown");
    for (path, body) in [
        ("/v1/acquire", json!({"name": "b"})),
        ("/v1/acquire-all", json!({"names": ["b"]})),
        ("/v1/break", json!({"name": "shown", "token": lock["holders"][0]["token"]})),
        ("/v1/release", json!({"name": "shown", "owner": OWNER})),
        ("/v1/withdraw", json!({"name": "shown", "owner": OWNER})),
        ("/v1/extend", json!({"name": "shown", "owner": OWNER})),
        ("/v1/keep", json!({"items": [{"name": "shown", "owner": OWNER}]})),
        ("/v1/admit", json!({"resource": "r", "token": 1})),
    ] {
        assert_eq!(client.post(path, &body).unwrap().status, 403, "{path}");
    }
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn a_store_keeps_its_password_to_itself() {
    let sandbox = Sandbox::new();
    let output =
        sandbox.output(&["serve", "--check-config", "--store", "redis://ada:secret@h:1/0?password=secret"]);
    let shown = text(&output.stdout);
    assert!(output.status.success() && shown.contains("store = \"redis://h:1/0\""), "{shown}");
    assert!(!shown.contains("secret") && !shown.contains("ada"), "{shown}");
}
