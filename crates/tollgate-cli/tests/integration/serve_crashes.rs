//! The server is killed again and again under load: no token twice, no two holders, no lock
//! forgotten.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate_testkit::scale::scale;

use crate::support::Sandbox;
use crate::support::server::{Http, Server};

/// What all clients share.
struct Shared {
    address: SocketAddr,
    counters: PathBuf,
    over: AtomicBool,
    /// How often each counter was raised by a holder.
    raised: Mutex<HashMap<String, u64>>,
    tokens: Mutex<HashMap<String, Vec<u64>>>,
    grants: AtomicU64,
    /// Holders that kept their lock through a kill of the server.
    kept: AtomicU64,
    kills: AtomicU64,
}

const NAMES: [&str; 3] = ["one", "two", "three"];

/// A grant, and until when its client may rely on it.
struct Held {
    grant: Value,
    deadline: Instant,
}

/// Takes a lock, repeating the call with its owner while the server is away.
fn acquire(http: &mut Http, shared: &Shared, name: &str, owner: &str, ttl_ms: u64) -> Option<Held> {
    while !shared.over.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let body =
            json!({"name": name, "owner": owner, "ttl_ms": ttl_ms, "wait_ms": 60_000, "round_ms": 1_000});
        match http.post("/v1/acquire", &body) {
            Ok(answer) if answer.status == 200 => {
                let valid = Duration::from_millis(answer.body["valid_ms"].as_u64().unwrap());
                return Some(Held { grant: answer.body, deadline: sent + valid });
            }
            // This owner is over: its grant has ended before it was heard of.
            Ok(answer) if answer.status == 410 => return None,
            Ok(answer) => assert!(matches!(answer.status, 409 | 503), "{answer:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    None
}

/// Raises the number in a file, as a program would that knows nothing of locks. While another one
/// writes it, the file is empty, and counts anew.
fn raise(counters: &Path, name: &str) {
    let file = counters.join(name);
    let number: u64 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap_or(0);
    std::thread::yield_now();
    std::fs::write(&file, (number + 1).to_string()).unwrap();
}

/// Renews a grant until the server answers; `None` when the deadline is over.
fn extend(http: &mut Http, held: &mut Held) -> Option<u16> {
    while Instant::now() < held.deadline {
        let sent = Instant::now();
        match http.post("/v1/extend", &held.grant) {
            Ok(answer) if answer.status == 200 => {
                held.deadline = sent + Duration::from_millis(answer.body["valid_ms"].as_u64().unwrap());
                return Some(200);
            }
            Ok(answer) if answer.status == 503 => std::thread::sleep(Duration::from_millis(10)),
            Ok(answer) => return Some(answer.status),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    None
}

/// Releases a lock, repeating the call until it is answered.
fn release(http: &mut Http, shared: &Shared, grant: &Value) {
    while !shared.over.load(Ordering::Relaxed) {
        match http.post("/v1/release", grant) {
            Ok(answer) if answer.status == 503 => std::thread::sleep(Duration::from_millis(10)),
            Ok(answer) => return assert!(matches!(answer.status, 200 | 410), "{answer:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn work(shared: &Shared, client: usize, ttl_ms: u64, keeps: bool) {
    let mut http = Http::new(shared.address);
    let mut number = 0_u64;
    while !shared.over.load(Ordering::Relaxed) {
        number += 1;
        let name = NAMES[(client + number as usize) % NAMES.len()];
        let owner = format!("{client:016x}{number:016x}");
        let Some(mut held) = acquire(&mut http, shared, name, &owner, ttl_ms) else { continue };
        // Enough time is left for what follows.
        if held.deadline > Instant::now() + Duration::from_millis(ttl_ms / 4) {
            shared.grants.fetch_add(1, Ordering::Relaxed);
            let token = held.grant["token"].as_u64().unwrap();
            shared.tokens.lock().unwrap().entry(name.to_owned()).or_default().push(token);
            raise(&shared.counters, name);
            *shared.raised.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        }
        if keeps && client.is_multiple_of(5) && number.is_multiple_of(3) {
            // Hold on until the server was killed, and ask the next one.
            let before = shared.kills.load(Ordering::Relaxed);
            while shared.kills.load(Ordering::Relaxed) == before && !shared.over.load(Ordering::Relaxed) {
                assert_eq!(extend(&mut http, &mut held).unwrap_or(200), 200, "a granted lock is forgotten");
                std::thread::sleep(Duration::from_millis(10));
            }
            if let Some(status) = extend(&mut http, &mut held) {
                assert_eq!(status, 200, "a granted lock is forgotten");
                shared.kept.fetch_add(1, Ordering::Relaxed);
            }
        }
        release(&mut http, shared, &held.grant);
    }
}

fn kill_under_load(durability: &str, ttl_ms: u64, kills: u64) {
    let sandbox = Sandbox::new();
    let counters = sandbox.path("counters");
    std::fs::create_dir(&counters).unwrap();
    for name in NAMES {
        std::fs::write(counters.join(name), "0").unwrap();
    }
    let max_ttl = format!("{ttl_ms}ms");
    let options = ["--durability", durability, "--max-ttl", &max_ttl];
    let mut server = Server::start(&sandbox, "127.0.0.1:0", &options);
    let shared = Arc::new(Shared {
        address: server.address,
        counters,
        over: AtomicBool::new(false),
        raised: Mutex::default(),
        tokens: Mutex::default(),
        grants: AtomicU64::new(0),
        kept: AtomicU64::new(0),
        kills: AtomicU64::new(0),
    });
    let keeps = durability == "sync";
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let shared = shared.clone();
            std::thread::spawn(move || work(&shared, client, ttl_ms, keeps))
        })
        .collect();
    for kill in 0..kills {
        // Also in the middle of a start.
        let uptime = Duration::from_millis(10 + kill * 37 % 200)
            + if keeps { Duration::ZERO } else { Duration::from_millis(ttl_ms) };
        std::thread::sleep(uptime);
        server.running.signal(Signal::KILL);
        server.running.wait();
        shared.kills.fetch_add(1, Ordering::Relaxed);
        server = Server::start(&sandbox, &shared.address.to_string(), &options);
    }
    std::thread::sleep(Duration::from_millis(ttl_ms + 500));
    shared.over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let (grants, kept) = (shared.grants.load(Ordering::Relaxed), shared.kept.load(Ordering::Relaxed));
    println!("{durability}: {kills} kills, {grants} grants, {kept} locks kept through a kill");
    for name in NAMES {
        let counted: u64 =
            std::fs::read_to_string(shared.counters.join(name)).unwrap().trim().parse().unwrap();
        let raised = shared.raised.lock().unwrap()[name];
        assert_eq!(counted, raised, "{name}: two holders overlapped");
        let tokens = shared.tokens.lock().unwrap()[name].clone();
        // A client notes its token while it holds the lock, so the order is that of the grants.
        assert!(tokens.is_sorted_by(|one, next| one < next), "{name}: {tokens:?}");
    }
    assert!(grants > kills, "{grants} grants");
    if keeps {
        assert!(kept > 0, "no client held a lock through a kill");
    }
}

#[test]
fn a_server_that_is_killed_under_load_forgets_no_lock_and_repeats_no_token() {
    kill_under_load("sync", 2_000, scale(50, 1_000) as u64);
}

#[test]
fn a_grace_server_that_is_killed_under_load_grants_nothing_too_early() {
    kill_under_load("grace", 400, scale(15, 300) as u64);
}

#[test]
fn without_the_lock_the_same_crowd_loses_counts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("one"), "0").unwrap();
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let counters = folder.path().to_owned();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    raise(&counters, "one");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let counted = std::fs::read_to_string(folder.path().join("one")).unwrap();
    assert_ne!(counted.trim(), "3200");
}
