//! Passwords, users, prefixes and names with every sort of character, from the URL to the key in Redis.

use std::net::SocketAddr;
use std::process::Command;

use crate::support::{Sandbox, text};
use tollgate_testkit::engines::{self, Config, Engine};

const PASSWORD: &str = "p@s:s/w?o#r&d=%25,+ ;'\"[ü]";
const USER: &str = "an:n@x/y";

/// Everything but letters and digits percent-encoded.
fn encoded(text: &str) -> String {
    let byte = |byte: &u8| match byte {
        letter if letter.is_ascii_alphanumeric() => char::from(*letter).to_string(),
        other => format!("%{other:02X}"),
    };
    text.as_bytes().iter().map(byte).collect()
}

fn redis_cli(address: SocketAddr, words: &[&str]) -> String {
    let port = address.port().to_string();
    let mut command = Command::new("redis-cli");
    // What it warns of is not for this test.
    let output = command.args(["--no-auth-warning", "-p", &port]).args(words).output().unwrap();
    text(&output.stdout).trim().to_owned()
}

fn closed() -> Engine {
    let engine = engines::private(&Config::redis()).unwrap();
    let (password, user) = (format!(">{PASSWORD}"), USER);
    let rights = ["on", &password, "~*", "&*", "+@all"];
    assert_eq!(redis_cli(engine.address(), &[&["ACL", "SETUSER", user], &rights[..]].concat()), "OK");
    assert_eq!(redis_cli(engine.address(), &["CONFIG", "SET", "requirepass", PASSWORD]), "OK");
    engine
}

/// Holds a lock at `url`, looks at it and for its key, and says nothing of the password.
fn works(url: &str, server: SocketAddr, name: &str, key: &str) {
    let sandbox = Sandbox::new();
    let grant = sandbox.output(&["acquire", "--url", url, name, "--ttl", "30s"]);
    assert!(grant.status.success(), "{url}: {}", text(&grant.stderr));
    assert_eq!(redis_cli(server, &["-a", PASSWORD, "EXISTS", key]), "1", "{key}");
    let listed = sandbox.output(&["ls", "--url", url, "--json"]);
    let locks: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(locks[0]["name"], name, "{}", text(&listed.stderr));
    let run = sandbox.output(&["run", "--url", url, "--try", name, "--", "true"]);
    assert_eq!(run.status.code(), Some(75), "{}", text(&run.stderr));
    let grant = text(&grant.stdout);
    for said in [&grant, &text(&run.stderr), &text(&listed.stdout)] {
        assert!(!said.contains(PASSWORD) && !said.contains(&encoded(PASSWORD)), "{said}");
    }
    let released = sandbox.output(&["release", "--url", url, grant.trim()]);
    assert!(released.status.success(), "{}", text(&released.stderr));
}

#[test]
fn on_one_redis() {
    let engine = closed();
    let (address, password) = (engine.address(), encoded(PASSWORD));
    works(&format!("redis://:{password}@{address}/"), address, "a b", "lock:a b");
    let user = encoded(USER);
    let url = format!("redis://{user}:{password}@{address}/?prefix={}", encoded("my & locks?:"));
    works(&url, address, "größe/{1}%", "my & locks?:größe/%7B1%7D%25");
    works(
        &format!("redis://{user}:{password}@{address}/?namespace=a team"),
        address,
        "x*?[y]",
        "lock:a team/x*?[y]",
    );
}

#[test]
fn on_redlock() {
    let nodes: Vec<Engine> = (0..3).map(|_| closed()).collect();
    let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let login = format!("{}:{}", encoded(USER), encoded(PASSWORD));
    let url = format!("redlock://{login}@{}?prefix={}", hosts.join(","), encoded("my & locks?:"));
    let init = Sandbox::new().output(&["redlock-init", &url]);
    assert!(init.status.success(), "{}", text(&init.stderr));
    works(&url, nodes[0].address(), "größe/{1}%", "my & locks?:größe/%7B1%7D%25");
}

#[test]
fn what_should_have_been_encoded_is_said_without_the_password() {
    let engine = closed();
    for password in ["sec/ret", "sec?ret", "sec?re=t", "sec@ret", "sec%ret", "sec#ret"] {
        let url = format!("redis://:{password}@{}/", engine.address());
        let run = Sandbox::new().output(&["run", "--url", &url, "--try", "a", "--", "true"]);
        let said = text(&run.stderr);
        // With an @ it is taken as it is, and is wrong.
        let code = run.status.code().unwrap();
        assert!([2, 77].contains(&code), "{password}: {code} {said}");
        for part in [password, "sec", "ret"] {
            assert!(!said.contains(part), "{said}");
        }
    }
}
