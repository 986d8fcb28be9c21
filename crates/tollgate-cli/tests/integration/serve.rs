//! `tollgate serve`: how it starts, whom it serves, and how it stops.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::server::{Http, Server};
use crate::support::{Sandbox, eventually, text};

#[test]
fn a_second_client_is_told_of_the_holder_and_a_third_waits_for_its_turn() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let (mut first, mut second) = (server.client(), server.client());
    let grant = first.acquire("backup");
    let busy = second.post("/v1/acquire", &json!({"name": "backup"})).unwrap();
    assert_eq!((busy.status, &busy.body["holders"][0]["token"]), (409, &grant["token"]));
    assert!(
        busy.head.contains("cache-control: no-store") && busy.head.contains("request-id: "),
        "{}",
        busy.head
    );
    let address = server.address;
    let third = std::thread::spawn(move || {
        Http::new(address).post("/v1/acquire", &json!({"name": "backup", "wait_ms": 20_000})).unwrap()
    });
    eventually("the third client waits", || {
        let lock = first.get("/v1/lock?name=backup").unwrap().body;
        (lock["waiters"].as_array()?.len() == 1).then_some(())
    });
    assert_eq!(first.post("/v1/release", &grant).unwrap().status, 200);
    let granted = third.join().unwrap();
    assert_eq!(granted.status, 200, "{granted:?}");
    assert!(granted.body["token"].as_u64() > grant["token"].as_u64());
}

#[test]
fn a_client_that_disconnects_leaves_no_claim_unless_it_knows_its_owner() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let mut client = server.client();
    client.acquire("a");
    for (owner, places) in [("", 0), (",\"owner\":\"0123456789abcdef0123456789abcdef\"", 1)] {
        let mut gone = server.client();
        let body = format!("{{\"name\":\"a\",\"wait_ms\":50000{owner}}}");
        let head =
            format!("POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        gone.send(&(head + &body)).unwrap();
        let mut waiters = || client.get("/v1/lock?name=a").unwrap().body["waiters"].as_array().unwrap().len();
        eventually("the claim waits", || (waiters() == 1).then_some(()));
        drop(gone);
        if places == 0 {
            eventually("the claim is withdrawn", || (waiters() == 0).then_some(()));
        } else {
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(waiters(), 1, "its place is kept");
        }
    }
}

#[test]
fn a_stop_answers_the_calls_under_way_and_every_lock_stays_held() {
    for durability in ["sync", "grace"] {
        let sandbox = Sandbox::new();
        let mut server = Server::start(&sandbox, "127.0.0.1:0", &["--durability", durability]);
        let grant = server.client().acquire("held");
        let address = server.address;
        let waiting = std::thread::spawn(move || {
            Http::new(address).post("/v1/acquire", &json!({"name": "held", "wait_ms": 50_000})).unwrap()
        });
        let items = json!([grant]);
        let keeping = std::thread::spawn(move || {
            Http::new(address).post("/v1/keep", &json!({"items": items, "wait_ms": 50_000})).unwrap()
        });
        let mut events = server.client();
        events.send("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        events.receive().unwrap();
        eventually("a claim waits", || {
            let lock = server.client().get("/v1/lock?name=held").unwrap().body;
            (lock["waiters"].as_array()?.len() == 1).then_some(())
        });
        server.running.signal(Signal::TERM);
        let began = Instant::now();
        assert_eq!(server.running.code(), 0);
        assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
        for refused in [waiting.join().unwrap(), keeping.join().unwrap()] {
            assert!(refused.head.contains("retry-after: "), "{refused:?}");
            assert_eq!(
                (refused.status, refused.body["type"].as_str()),
                (503, Some("urn:tollgate:problem:unavailable"))
            );
        }
        let server = Server::start(&sandbox, "127.0.0.1:0", &["--durability", durability]);
        let extended = server.client().post("/v1/extend", &grant).unwrap();
        assert_eq!((extended.status, &extended.body["token"]), (200, &grant["token"]), "{durability}");
        let busy = server.client().post("/v1/acquire", &json!({"name": "held"})).unwrap();
        assert_eq!(busy.status, 409);
    }
}

#[test]
fn after_a_crash_grace_grants_nothing_until_the_longest_lock_is_over_and_says_for_how_long() {
    let sandbox = Sandbox::new();
    let options = ["--durability", "grace", "--max-ttl", "3s"];
    let mut server = Server::start(&sandbox, "127.0.0.1:0", &options);
    let lost = server.client().post("/v1/acquire", &json!({"name": "a", "ttl_ms": 2_000})).unwrap();
    server.running.signal(Signal::KILL);
    server.running.wait();
    let began = Instant::now();
    let server = Server::start(&sandbox, "127.0.0.1:0", &options);
    let again = json!({"name": "a", "ttl_ms": 1_000});
    let refused = server.client().post("/v1/acquire", &again).unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
    let after = refused.body["retry_after_ms"].as_u64().unwrap();
    assert!((1..=2_000).contains(&after) && refused.head.contains("retry-after: "), "{refused:?}");
    assert_eq!(server.client().get("/readyz").unwrap().status, 200, "holders renew, and others hear why");
    let granted = eventually("it grants again", || {
        Some(server.client().post("/v1/acquire", &again).unwrap()).filter(|answer| answer.status == 200)
    });
    assert!(began.elapsed() >= Duration::from_millis(1_900), "{:?}", began.elapsed());
    assert!(granted.body["token"].as_u64() > lost.body["token"].as_u64());
}

#[test]
fn a_server_that_was_stopped_takes_no_lease_from_holders_that_renew() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let grant = server.client().post("/v1/acquire", &json!({"name": "a", "ttl_ms": 1_000})).unwrap().body;
    server.running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    let address = server.address;
    // The renewal waits in the server's socket while the server is stopped.
    let renewal = std::thread::spawn(move || Http::new(address).post("/v1/extend", &grant).unwrap());
    std::thread::sleep(Duration::from_millis(200));
    server.running.signal(Signal::CONT);
    let renewed = renewal.join().unwrap();
    assert_eq!(renewed.status, 200, "{renewed:?}");
}

#[test]
fn one_data_folder_has_one_server_and_one_port_has_one() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let second = sandbox.output(&["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    assert_eq!(second.status.code(), Some(69));
    // The command runs under `env`, which becomes it.
    let pid = format!("(process {})", server.running.0.id());
    assert!(text(&second.stderr).contains(&pid), "{}", text(&second.stderr));
    let taken = sandbox.output(&["serve", "--listen", &server.address.to_string(), "--data", "other"]);
    assert_eq!(taken.status.code(), Some(69));
    assert!(text(&taken.stderr).contains("--listen"), "{}", text(&taken.stderr));
}

#[test]
fn without_access_rules_only_this_machine_is_served() {
    let sandbox = Sandbox::new();
    let refused = sandbox.output(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(text(&refused.stderr).contains("--insecure"), "{}", text(&refused.stderr));
    let server = Server::start(&sandbox, "127.0.0.1:0", &["--host", "locks.example"]);
    let ask = |host: &str, more: &str| {
        let request = format!("GET /v1/locks HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        server.client().exchange(&request).unwrap().status
    };
    assert_eq!((ask("locks.example:80", ""), ask("evil.example", "")), (200, 403));
    assert_eq!(ask("localhost", "Origin: http://evil.example\r\n"), 403);
    assert_eq!(ask("localhost", "Origin: http://localhost\r\n"), 200);
}

#[test]
fn a_unix_socket_serves_the_same() {
    use std::io::Write;
    let sandbox = Sandbox::new();
    // What a server that was killed left behind is replaced.
    for _ in 0..2 {
        let mut server = Server::start(&sandbox, "127.0.0.1:0", &["--unix", "server.sock"]);
        let mut stream = UnixStream::connect(sandbox.path("server.sock")).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server.running.signal(Signal::KILL);
        server.running.wait();
    }
}

#[test]
fn settings_come_from_flags_then_the_environment_then_the_file() {
    let sandbox = Sandbox::new();
    let file = "listen = \"127.0.0.1:1\"\ndurability = \"grace\"\nmax_ttl = \"7s\"\nconnections = 5\n";
    std::fs::write(sandbox.path("server.toml"), file).unwrap();
    let shown = |arguments: &[&str]| {
        let mut command = sandbox.tollgate(&["serve", "--check-config", "--config", "server.toml"]);
        let output = command.args(arguments).env("TOLLGATE_SERVE_LISTEN", "127.0.0.1:2").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let settings = shown(&[]);
    for line in
        ["listen = \"127.0.0.1:2\"", "durability = \"grace\"", "max_ttl = \"7000ms\"", "connections = 5"]
    {
        assert!(settings.contains(line), "{line} is not in\n{settings}");
    }
    assert!(shown(&["--listen", "127.0.0.1:3"]).contains("listen = \"127.0.0.1:3\""));
    // What is shown can be used as a file.
    std::fs::write(sandbox.path("server.toml"), &settings).unwrap();
    assert_eq!(shown(&[]), settings);
    for (wrong, says) in [
        ("lisen = \"127.0.0.1:1\"", "lisen"),
        ("durability = \"some\"", "sync"),
        ("max_ttl = 5", "line 1"),
        ("listen = ", "line 1"),
        ("\n\nconnections = -1", "line 3"),
        ("connections = 0", "at least 1"),
    ] {
        std::fs::write(sandbox.path("wrong.toml"), wrong).unwrap();
        let output = sandbox.output(&["serve", "--config", "wrong.toml", "--listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(78), "{wrong}");
        assert!(text(&output.stderr).contains(says), "{wrong}: {}", text(&output.stderr));
    }
}

#[test]
fn a_store_that_cannot_be_read_is_refused_with_its_name_and_what_to_do() {
    let sandbox = Sandbox::new();
    let mut server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    server.client().acquire("a");
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.code(), 0);
    let store = sandbox.path("data/locks.redb");
    let whole = std::fs::read(&store).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        bytes
    };
    for broken in [whole[..whole.len() / 2].to_vec(), flipped(0), b"nonsense".to_vec()] {
        std::fs::write(&store, broken).unwrap();
        let output = sandbox.output(&["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{stderr}");
        assert!(stderr.contains("locks.redb") && stderr.contains("--token-floor"), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_start_that_fails_costs_no_lock() {
    for durability in ["sync", "grace"] {
        let sandbox = Sandbox::new();
        let mut server = Server::start(&sandbox, "127.0.0.1:0", &["--durability", durability]);
        let grant = server.client().acquire("held");
        server.running.signal(Signal::TERM);
        assert_eq!(server.running.code(), 0);
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        std::fs::write(sandbox.path("file"), "").unwrap();
        for arguments in [["--listen", &address], ["--unix", "file"]] {
            let mut command = vec!["serve", "--data", "data", "--durability", durability];
            if arguments[0] != "--listen" {
                command.extend(["--listen", "127.0.0.1:0"]);
            }
            command.extend(arguments);
            assert_eq!(sandbox.output(&command).status.code(), Some(69), "{command:?}");
        }
        // Nor does one whose announcement nothing can read.
        let mut command = sandbox.tollgate(&[
            "serve",
            "--data",
            "data",
            "--durability",
            durability,
            "--listen",
            "127.0.0.1:0",
        ]);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(command.stdout(full).status().unwrap().code(), Some(69));
        let server = Server::start(&sandbox, "127.0.0.1:0", &["--durability", durability]);
        assert_eq!(server.client().post("/v1/extend", &grant).unwrap().status, 200, "{durability}");
    }
}

#[test]
fn a_store_that_is_gone_is_noticed_and_is_readable_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("data")).unwrap();
    let mut server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let grant = server.client().acquire("a");
    let store = sandbox.path("data/locks.redb");
    assert_eq!(std::fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o600);
    server.running.signal(Signal::KILL);
    server.running.wait();
    for gone in [false, true] {
        std::fs::write(&store, "").unwrap();
        if gone {
            std::fs::remove_file(&store).unwrap();
        }
        let refused = sandbox.output(&["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
        assert_eq!(refused.status.code(), Some(69), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("--token-floor"), "{}", text(&refused.stderr));
    }
    let token = grant["token"].as_u64().unwrap();
    let options = ["--token-floor", &token.to_string(), "--max-ttl", "1s"];
    let server = Server::start(&sandbox, "127.0.0.1:0", &options);
    let next = eventually("it grants when every lost lock is over", || {
        let answer = server.client().post("/v1/acquire", &json!({"name": "a", "ttl_ms": 1_000})).unwrap();
        (answer.status == 200).then_some(answer.body)
    });
    assert!(next["token"].as_u64() > Some(token));
}

#[test]
fn the_address_that_a_server_prints_can_be_pasted() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let grant = server.client().acquire("a");
    for url in [format!("http://{}", server.address), format!("http://{}/", server.address)] {
        let listed = sandbox.output(&["ls", "--json", "--url", &url]);
        assert!(text(&listed.stdout).contains(&grant["token"].to_string()), "{}", text(&listed.stderr));
    }
}

#[test]
fn connections_beyond_the_limit_are_told_so_and_idle_ones_cost_others_nothing() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &["--connections", "3"]);
    let idle: Vec<_> = (0..2).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let mut client = server.client();
    client.acquire("a");
    let mut refused = server.client();
    let answer = refused.get("/v1/locks").unwrap();
    assert_eq!((answer.status, &answer.body["limit"]), (503, &json!("connections")), "{answer:?}");
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    drop(idle);
    eventually("there is room again", || {
        let answer = server.client().get("/v1/locks").ok()?;
        (answer.status == 200).then_some(())
    });
}

#[test]
fn what_is_no_request_is_refused_within_limits() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let long = "x".repeat(70_000);
    for (request, statuses) in [
        (
            format!(
                "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{long}",
                long.len()
            ),
            &[413][..],
        ),
        (
            format!(
                "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
                long.len()
            ),
            &[413],
        ),
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), &[414, 431]),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"), &[431]),
        ("GET /v1/locks HTTP/1.1\r\n\r\n".to_owned(), &[400]),
        ("DELETE /v1/locks HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), &[405]),
        ("GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".to_owned(), &[413]),
        ("POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}".to_owned(), &[404]),
        ("POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}".to_owned(), &[405]),
        ("hello\r\n\r\n".to_owned(), &[400]),
    ] {
        let answer = server.client().exchange(&request).unwrap();
        assert!(statuses.contains(&answer.status), "{}: {answer:?}", &request[..60.min(request.len())]);
    }
    assert_eq!(server.client().get("/healthz").unwrap().status, 200);
}

#[test]
fn events_go_on_after_the_last_one_that_a_client_has() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "127.0.0.1:0", &[]);
    let follow = |last: &str| {
        let mut events = server.client();
        let header = if last.is_empty() { String::new() } else { format!("Last-Event-ID: {last}\r\n") };
        events.send(&format!("GET /v1/events?prefix=a HTTP/1.1\r\nHost: localhost\r\n{header}\r\n")).unwrap();
        let head = events.receive().unwrap();
        assert!(head.head.contains("text/event-stream"), "{}", head.head);
        events
    };
    // The next line that begins so; chunk sizes and empty lines stand between.
    let next = |events: &mut Http, field: &str| {
        loop {
            let line = events.line();
            if let Some(value) = line.strip_prefix(field) {
                return value.trim().to_owned();
            }
        }
    };
    let mut events = follow("");
    let mut client = server.client();
    client.acquire("other");
    let grant = client.acquire("a/1");
    client.post("/v1/release", &grant).unwrap();
    let id = next(&mut events, "id: ");
    assert_eq!(
        (next(&mut events, "event: "), next(&mut events, "event: ")),
        ("granted".into(), "released".into())
    );
    let mut resumed = follow(&id);
    assert_eq!(next(&mut resumed, "event: "), "released");
    for unknown in ["0000000000000001-5", "nonsense"] {
        assert_eq!(next(&mut follow(unknown), "event: "), "reset");
    }
}
