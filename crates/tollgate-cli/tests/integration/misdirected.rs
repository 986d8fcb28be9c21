//! URLs that lead to another server than they say: each is told with what to do about it, and none is called a bug.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Sandbox, eventually, redis_cli, text};
use tollgate_testkit::engines::{self, Config, Engine};

fn redis() -> Engine {
    engines::private(&Config::redis()).unwrap()
}

/// Runs a command under a lock at `url`, which fails with `code` and says all of `words`.
#[track_caller]
fn refuses(url: &str, code: i32, words: &[&str]) {
    let output = Sandbox::new().output(&["run", "--url", url, "--try", "x", "--", "true"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{url}: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

#[test]
fn a_database_that_is_not_there() {
    let engine = redis();
    refuses(&format!("redis://{}/99", engine.address()), 78, &["database", "databases"]);
}

#[test]
fn a_cluster_where_there_is_none() {
    let engine = redis();
    refuses(&format!("redis-cluster://{}", engine.address()), 78, &["belongs to no cluster", "redis://"]);
}

#[test]
fn a_sentinel_where_a_redis_should_be() {
    let engine = engines::private(&Config::sentinel()).unwrap();
    let address = engine.address();
    refuses(
        &format!("redis://{address}/"),
        78,
        &["is a sentinel", &format!("redis-sentinel://{address}/SERVICE")],
    );
    refuses(&format!("redis-cluster://{address}/"), 78, &[]);
    let (one, other) = (redis(), redis());
    let hosts = format!("{},{},{address}", one.address(), other.address());
    let init = Sandbox::new().output(&["redlock-init", &format!("redlock://{hosts}")]);
    assert_eq!(init.status.code(), Some(78), "{}", text(&init.stderr));
}

#[test]
fn one_server_of_a_cluster_where_a_redis_should_be() {
    let config = Config::redis().argument("--cluster-enabled").argument("yes");
    let buses = [(); 2].map(|()| engines::spare_port());
    let start =
        |bus: String| engines::private(&config.clone().argument("--cluster-port").argument(bus)).unwrap();
    let nodes: Vec<Engine> = buses.iter().map(|bus| start(bus.number().to_string())).collect();
    let (port, bus) = (nodes[0].address().port().to_string(), buses[0].number().to_string());
    for (node, [first, last]) in nodes.iter().zip([["0", "8191"], ["8192", "16383"]]) {
        redis_cli(node.address(), &["CLUSTER", "ADDSLOTSRANGE", first, last]);
        redis_cli(node.address(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    eventually("the cluster stands", || {
        let stands =
            |node: &Engine| redis_cli(node.address(), &["CLUSTER", "INFO"]).contains("cluster_state:ok");
        nodes.iter().all(stands).then_some(())
    });
    let slot: u16 = redis_cli(nodes[0].address(), &["CLUSTER", "KEYSLOT", "lock:x"]).parse().unwrap();
    let other = &nodes[usize::from(slot < 8192)];
    refuses(&format!("redis://{}/", other.address()), 78, &["cluster", "redis-cluster://"]);
}

#[test]
fn a_redis_that_has_as_many_clients_as_it_takes() {
    let engine = redis();
    redis_cli(engine.address(), &["CONFIG", "SET", "maxclients", "1"]);
    let mut held = TcpStream::connect(engine.address()).unwrap();
    held.write_all(b"PING\r\n").unwrap();
    let mut pong = [0; 7];
    held.read_exact(&mut pong).unwrap();
    refuses(&format!("redis://{}/", engine.address()), 69, &["clients", "maxclients"]);
}

#[test]
fn a_server_that_never_answers_costs_no_more_than_the_time_that_was_given() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    for url in [format!("redis://{address}/"), format!("redis-sentinel://{address}/main")] {
        let since = Instant::now();
        refuses(&format!("{url}?timeout=200ms"), 69, &["200ms"]);
        assert!(since.elapsed() < Duration::from_millis(1500), "it took {:?}", since.elapsed());
    }
    refuses(&format!("redis://{address}/?timeout=0s"), 2, &["timeout"]);
}

/// Somebody who answers everything as a web server does.
fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    address
}

/// Three nodes that vote.
fn voters() -> Vec<Engine> {
    let nodes: Vec<Engine> = (0..3).map(|_| redis()).collect();
    let init = Sandbox::new().output(&["redlock-init", &url(nodes.iter().map(Engine::address))]);
    assert!(init.status.success(), "{}", text(&init.stderr));
    nodes
}

fn url(hosts: impl Iterator<Item = SocketAddr>) -> String {
    let hosts: Vec<String> = hosts.map(|host| host.to_string()).collect();
    format!("redlock://{}", hosts.join(","))
}

/// A majority works without the last node; without two it says why of each.
fn does_without(nodes: &[Engine], bad: [SocketAddr; 2], code: i32, why: &str) {
    let sandbox = Sandbox::new();
    let one = url([nodes[0].address(), nodes[1].address(), bad[1]].into_iter());
    let run = sandbox.output(&["run", "--url", &one, "--ttl", "5s", "x", "--", "sh", "-c", "echo >in"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let doctor = sandbox.output(&["doctor", &one]);
    let (said, label) = (text(&doctor.stdout), bad[1].to_string());
    assert!(said.contains(&format!("{label} cannot be queried")) && said.contains(why), "{said}");
    let two = url([nodes[0].address(), bad[0], bad[1]].into_iter());
    refuses(&two, code, &[&bad[0].to_string(), &label, why, "2 of 3 nodes"]);
}

#[test]
fn a_node_of_redlock_that_is_no_redis() {
    does_without(&voters(), [web_server(), web_server()], 78, "is not a Redis");
}

#[test]
fn a_node_of_redlock_at_which_nobody_is() {
    let spare = [(); 2].map(|()| engines::spare_port());
    does_without(&voters(), [spare[0].address(), spare[1].address()], 69, "cannot be reached");
}

#[test]
fn a_node_of_redlock_that_wants_another_password() {
    let nodes = voters();
    for node in &nodes[1..] {
        redis_cli(node.address(), &["CONFIG", "SET", "requirepass", "other"]);
    }
    let good = voters();
    // The first of these has no password.
    does_without(&good, [nodes[1].address(), nodes[2].address()], 77, "does not accept the user or password");
}

#[test]
fn nodes_of_redlock_that_do_not_speak_tls() {
    let nodes = voters();
    let encrypted = url(nodes.iter().map(Engine::address)).replace("redlock://", "redlocks://");
    refuses(&encrypted, 69, &["redlock:// instead of redlocks://"]);
}

#[test]
fn a_first_start_without_all_nodes_says_who_is_missing_and_why() {
    let (one, other, nobody) = (redis(), redis(), engines::spare_port());
    let url = url([one.address(), other.address(), nobody.address()].into_iter());
    let init = Sandbox::new().output(&["redlock-init", &url]);
    let said = text(&init.stderr);
    assert_eq!(init.status.code(), Some(69), "{said}");
    for word in ["all 3 nodes", &nobody.address().to_string(), "is it running", "Nothing was changed"] {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    assert!(!said.contains("2 of 3"), "{said}");
}
