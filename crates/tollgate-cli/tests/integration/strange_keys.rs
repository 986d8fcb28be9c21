//! Looking at locks on Redis where something else is in the place of one: it is named, and hides no other.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use crate::support::{Sandbox, eventually, redis_cli, text};
use tollgate_testkit::engines::{self, Config};

/// Everything that looks at locks, with a hash in the place of one and another that is held.
fn look_around(url: &str, addresses: &[SocketAddr]) {
    let sandbox = Sandbox::new();
    for address in addresses {
        redis_cli(*address, &["HSET", "lock:x", "field", "value"]);
    }
    let grant = sandbox.output(&["acquire", "--url", url, "y", "--ttl", "60s"]);
    assert!(grant.status.success(), "{}", text(&grant.stderr));

    let listed = sandbox.output(&["ls", "--url", url]);
    let (out, said) = (text(&listed.stdout), text(&listed.stderr));
    assert_eq!(listed.status.code(), Some(78), "{said}");
    assert!(out.contains('y') && !out.contains("\nx"), "{out}");
    for word in ["\"x\"", "\"lock:x\"", "hash", "?prefix="] {
        assert!(said.contains(word), "{word} is not in: {said}");
    }

    let seen = sandbox.output(&["inspect", "--url", url, "x"]);
    assert_eq!(seen.status.code(), Some(78), "{}", text(&seen.stderr));
    assert!(!text(&seen.stdout).contains("free"), "{}", text(&seen.stdout));
    assert!(text(&seen.stderr).contains("\"lock:x\" is a hash"), "{}", text(&seen.stderr));

    let mut watch = sandbox
        .tollgate(&["watch", "--url", url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(watch.stderr.take().unwrap()).lines();
    let told = errors.next().unwrap().unwrap();
    assert!(told.contains("\"lock:x\" is a hash"), "{told}");
    let grant = text(&grant.stdout);
    assert!(sandbox.output(&["release", "--url", url, grant.trim()]).status.success());
    let event = BufReader::new(watch.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(event.contains("ended") && event.contains('y'), "{event}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&watch), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(eventually("it ends", || watch.try_wait().unwrap()).code(), Some(0));
    assert_eq!(errors.map_while(Result::ok).count(), 0, "it is told once");
}

#[test]
fn on_one_redis_what_is_no_lock_is_named_and_the_others_are_listed() {
    let engine = engines::private(&Config::redis()).unwrap();
    look_around(&format!("redis://{}/", engine.address()), &[engine.address()]);
}

#[test]
fn on_redlock_what_is_no_lock_is_named_and_the_others_are_listed() {
    let nodes: Vec<_> = (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address()).collect();
    let hosts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let url = format!("redlock://{}", hosts.join(","));
    let ready = Sandbox::new().output(&["redlock-init", &url]);
    assert!(ready.status.success(), "{}", text(&ready.stderr));
    look_around(&url, &addresses);
}
